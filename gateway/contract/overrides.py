"""Overrides, control -> gateways: manual settings with actor, reason and expiry. The gateway enforces the expiry."""

from msgspec import Struct

from gateway.core.vocabulary import OverrideKind

SCHEMA = 1


class OverrideSpec(Struct, frozen=True, kw_only=True):
    """One manual setting. `target` and `value` as in `gateway.core.events.Override`."""

    id: str
    kind: OverrideKind
    target: str
    value: str
    actor: str
    reason: str
    created_at: float  # epoch seconds
    expires_at: float  # epoch seconds


class Overrides(Struct, frozen=True, kw_only=True):
    """All overrides in force, and the version of the set (grows with every change)."""

    schema: int = SCHEMA
    version: int
    overrides: tuple[OverrideSpec, ...]
