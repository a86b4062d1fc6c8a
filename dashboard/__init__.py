"""Live pages from frames, history from rollups. Views only."""
