"""A model of inference engines and their callers: proves the core on a virtual clock, and stands in for real engines."""
