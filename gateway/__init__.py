"""The data plane: decides in `core`, acts in a thin shell around it. Start with docs/architecture.md."""
