"""The engine model as an OpenAI-compatible server: `python -m gateway.simulation.serve --help`."""
