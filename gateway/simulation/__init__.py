"""The engine model that proves the core on a virtual clock, and the same model as a runnable server."""
