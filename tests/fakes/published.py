"""What control would publish: a small snapshot, bounds, overrides, and how each travels."""

import msgspec

from gateway.contract.bounds import Bounds
from gateway.contract.codec import encode
from gateway.contract.envelope import Header, SigningKey, seal
from gateway.contract.overrides import Overrides, OverrideSpec
from gateway.contract.snapshot import (
    BackendSpec,
    GrantSpec,
    KeySpec,
    PoolSpec,
    Snapshot,
    TenantSpec,
    TierSpec,
)
from gateway.core.policy import BackendPolicy, PoolPolicy, default_tiers
from gateway.core.vocabulary import OverrideKind

SIGNING = SigningKey(b"a signing key for tests only")
NOW = 1_800_000_000.0


def a_snapshot(revision: int = 1, **changes: object) -> Snapshot:
    """One tenant with a grant in tier 1 on one pool with one backend, and one key."""
    plain = Snapshot(
        revision=revision,
        created_at=NOW,
        tiers=tuple(TierSpec(policy=t) for t in default_tiers()),
        pools=(PoolSpec(policy=PoolPolicy(name="chat"), models=("tiny", "tiny-alias")),),
        backends=(
            BackendSpec(
                policy=BackendPolicy(name="b1", pool="chat"), url="http://127.0.0.1:9101", engine="llama_cpp"
            ),
        ),
        tenants=(TenantSpec(name="acme"),),
        grants=(GrantSpec(tenant="acme", pool="chat", tier=1),),
        keys=(KeySpec(public_id="abcdefghijkl", tenant="acme", digests=("0" * 64,)),),
    )
    return msgspec.structs.replace(plain, **changes)


def a_grant(**changes: object) -> GrantSpec:
    """The grant of `a_snapshot`, changed."""
    return msgspec.structs.replace(GrantSpec(tenant="acme", pool="chat", tier=1), **changes)


def some_bounds(epoch: int, seq: int, **changes: object) -> Bounds:
    """Bounds that bound nothing."""
    return msgspec.structs.replace(
        Bounds(epoch=epoch, seq=seq, sent_at=NOW, backends=(), gateways=()), **changes
    )


def an_override(id_: str = "o1", **changes: object) -> OverrideSpec:
    """A breaker forced open for a minute."""
    plain = OverrideSpec(
        id=id_,
        kind=OverrideKind.BREAKER,
        target="b1",
        value="open",
        actor="olga",
        reason="drill",
        created_at=NOW,
        expires_at=NOW + 60,
    )
    return msgspec.structs.replace(plain, **changes)


def sealed(
    body: Snapshot | Bounds | Overrides,
    version: tuple[int, int, int],
    *,
    sent_at: float = NOW,
    key: SigningKey = SIGNING,
) -> bytes:
    """A body as it lies in Valkey."""
    return sealed_bytes(type(body).__name__.lower(), encode(body), version, sent_at=sent_at, key=key)


def sealed_bytes(
    kind: str,
    body: bytes,
    version: tuple[int, int, int],
    *,
    sent_at: float = NOW,
    key: SigningKey = SIGNING,
) -> bytes:
    """Any bytes, genuinely sealed."""
    generation, epoch, seq = version
    header = Header(kind=kind, generation=generation, epoch=epoch, seq=seq, sent_at=sent_at, key_id="")
    return seal(key, header, body)
