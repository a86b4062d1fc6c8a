"""The tables. Invariants are database constraints.

Nobody but control's keepers touches a row (services write, selectors read), and a guarded row changes only inside of an
audited change (`models.guard`).
"""

from control.models.audit import AuditEvent, AuditHead
from control.models.guard import AppendOnly, Guarded, UnauditedWrite, writing
from control.models.incidents import Incident, IncidentEvent
from control.models.overrides import MAX_OVERRIDE_S, Override
from control.models.policy import Backend, Pool, QueuePolicy, Tier
from control.models.revisions import PolicyRevision, PublishedState
from control.models.tenancy import ApiKey, Grant, Membership, QuotaRequest, Tenant
from control.models.usage import UsageLedger, UsageMark

__all__ = [
    "MAX_OVERRIDE_S",
    "ApiKey",
    "AppendOnly",
    "AuditEvent",
    "AuditHead",
    "Backend",
    "Grant",
    "Guarded",
    "Incident",
    "IncidentEvent",
    "Membership",
    "Override",
    "PolicyRevision",
    "Pool",
    "PublishedState",
    "QueuePolicy",
    "QuotaRequest",
    "Tenant",
    "Tier",
    "UnauditedWrite",
    "UsageLedger",
    "UsageMark",
    "writing",
]
