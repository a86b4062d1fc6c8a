"""Views: thin. Who may see it, which frame, which panels, which template."""
