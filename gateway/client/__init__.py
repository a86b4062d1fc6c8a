"""The package for callers: retries with jitter and a budget. Depends on httpx2 alone."""
