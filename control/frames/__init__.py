"""Merge the reports of all gateways into one frame. Pure: no clock, no Valkey, no table."""
