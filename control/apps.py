"""The Django app `control`."""

from importlib import import_module

from django.apps import AppConfig


class ControlConfig(AppConfig):
    """Tables, services and the slow loop."""

    name = "control"
    verbose_name = "Sluicegate"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks and what is written down about sign-ins (by name: both are layers above)."""
        import_module("control.checks")
        import_module("control.services.signins")
