"""Callers, gateways and engines on one virtual clock. Every gateway is a real `Gate`, fed with events.

Time goes from event to event; nothing waits. There is no network delay: what an engine step produced is seen by the
gateways at once, as one `Progress` per gateway, backend and step, and what they dispatch is in the next step.
"""

from gateway.simulation.runner.setup import POOL, EngineFault, EngineTotals, Record, Setup
from gateway.simulation.runner.simulation import Simulation, run

__all__ = ["POOL", "EngineFault", "EngineTotals", "Record", "Setup", "Simulation", "run"]
