"""Engine dialects: metrics text in, Telemetry out."""
