"""Every write. Frozen values in and out; one transaction and exactly one audit row each.

records     rows of the policy tables, whole (what the admin saves)
keys        API keys: mint, rotate, revoke
overrides   manual settings: set, release
quotas      quota requests: ask, decide
people      users and their roles
usage       the ledger, from the gateways' deltas
demo        a first installation
generations after an old backup was restored
signins     sign-ins and lockouts (signals)
"""

from control.audit import Actor
from control.services.errors import Conflict, Invalid, NotFound, ServiceRefused

__all__ = ["Actor", "Conflict", "Invalid", "NotFound", "ServiceRefused"]
