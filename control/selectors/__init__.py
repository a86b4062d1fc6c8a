"""Every read, as frozen values; no row leaves this package.

access      what a user may do
policy      tiers, queue policies, pools, backends, revisions
tenants     tenants, grants, keys, quota requests
overrides   what is in force, what was
audit_log   pages of the audit log
incidents   open and past incidents, events for annotations
"""

from control.selectors.access import Access, access_of
from control.selectors.audit_log import AuditFilter, AuditPage, AuditRow, audit_page
from control.selectors.incidents import IncidentRow, open_incidents
from control.selectors.overrides import OverrideRow, latest_overrides, override, overrides_in_force
from control.selectors.policy import (
    BackendRow,
    PoolRow,
    RevisionRow,
    TierRow,
    backends,
    current_revision_number,
    current_snapshot,
    pending_migrations,
    pools,
    revisions,
    tiers,
)
from control.selectors.tenants import (
    GrantRow,
    KeyRow,
    QuotaRequestRow,
    TenantRow,
    grants_of,
    keys_of,
    pending_quota_requests,
    tenants,
)

__all__ = [
    "Access",
    "AuditFilter",
    "AuditPage",
    "AuditRow",
    "BackendRow",
    "GrantRow",
    "IncidentRow",
    "KeyRow",
    "OverrideRow",
    "PoolRow",
    "QuotaRequestRow",
    "RevisionRow",
    "TenantRow",
    "TierRow",
    "access_of",
    "audit_page",
    "backends",
    "current_revision_number",
    "current_snapshot",
    "grants_of",
    "keys_of",
    "latest_overrides",
    "open_incidents",
    "override",
    "overrides_in_force",
    "pending_migrations",
    "pending_quota_requests",
    "pools",
    "revisions",
    "tenants",
    "tiers",
]
