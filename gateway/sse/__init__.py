"""Incremental reading of server-sent events: usage, output count and errors, while the bytes are relayed untouched."""

from gateway.sse.payloads import Dialect, ErrorEvent, Usage, read_usage
from gateway.sse.reader import HOLD_LIMIT, INSPECT_LIMIT, EventReader

__all__ = ["HOLD_LIMIT", "INSPECT_LIMIT", "Dialect", "ErrorEvent", "EventReader", "Usage", "read_usage"]
