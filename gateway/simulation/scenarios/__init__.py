"""What the core must hold, on a virtual clock: `python -m gateway.simulation.scenarios --help`."""
