"""The edge: every byte of a caller passes here first. uvicorn and httptools, bounded and strict."""

from gateway.edge.limits import Limits
from gateway.edge.server import Listener, Plan, run

__all__ = ["Limits", "Listener", "Plan", "run"]
