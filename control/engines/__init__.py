"""Engine dialects: pages of an engine in, Telemetry out. Pure; one module per engine, none knows another.

Names and their history are in docs/engines.md. Fetching is the business of `control.observations`.
"""
