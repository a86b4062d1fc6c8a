"""Live frames: one reader of Valkey per web process, and what every open page gets of it as server-sent events."""
