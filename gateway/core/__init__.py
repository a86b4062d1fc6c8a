"""The pure part of the gateway: events in, commands out. No clock, dice, loop, network or disk."""
