"""Tables -> gateways: build the snapshot, refuse a bad one before anything is committed, number it, sign it, send it.

`build` reads the tables, `revise` numbers and keeps a revision inside of the caller's transaction, `deliver` puts the
newest revision and the overrides in force into Valkey (also later, from the tick, where Valkey was away).
"""

from control.publishing.build import build_snapshot
from control.publishing.deliver import (
    Delivery,
    deliver_overrides,
    deliver_snapshot,
    force_generation,
    republish_if_behind,
)
from control.publishing.revise import (
    PolicyRefused,
    bump_overrides,
    overrides_in_force,
    policy_problems,
    read_revision,
    revise,
)

__all__ = [
    "Delivery",
    "PolicyRefused",
    "build_snapshot",
    "bump_overrides",
    "deliver_overrides",
    "deliver_snapshot",
    "force_generation",
    "overrides_in_force",
    "policy_problems",
    "read_revision",
    "republish_if_behind",
    "revise",
]
