"""Names in Valkey: one place, so that no plane invents its own."""

PREFIX = "sluicegate:"
SNAPSHOT = PREFIX + "snapshot"
BOUNDS = PREFIX + "bounds"
OVERRIDES = PREFIX + "overrides"
FRAME = PREFIX + "frame"
FRAMES = PREFIX + "frames"  # capped stream, one hour
LEASE = PREFIX + "lease"
EPOCH = PREFIX + "epoch"
GATEWAYS = PREFIX + "gateways"  # sorted set: gateway id by its last heartbeat (epoch seconds)
USAGE = PREFIX + "usage"  # stream of UsageDelta, sealed (kind "usage"), in the field USAGE_FIELD
USAGE_FIELD = "delta"
CHANGES = PREFIX + "changes"  # channel: "<kind> <version>"; the receiver re-reads
CELERY_PREFIX = PREFIX + "celery:"

REPORT_TTL_MS = 3000
FRAMES_MAX = 3600
EXPLAIN_TTL_S = 3600


def report(gateway_id: str) -> str:
    """Key of the latest report of one gateway (expires after REPORT_TTL_MS)."""
    return f"{PREFIX}report:{gateway_id}"


def quota(tenant: str, kind: str) -> str:
    """Key of one tenant's shared bucket: `kind` is `requests:<pool>`, `tokens:<pool>`, `concurrency:<pool>`."""
    return f"{PREFIX}quota:{tenant}:{kind}"


def explain(request_id: str) -> str:
    """Key of the recorded decision about one request (expires after EXPLAIN_TTL_S)."""
    return f"{PREFIX}explain:{request_id}"
