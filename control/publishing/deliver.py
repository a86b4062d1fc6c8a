"""Newest revision and overrides in force -> Valkey, signed. Never in the way of saving: what fails is sent by the tick.

Compare-and-set in one script: two web processes that commit revisions 5 and 6 may deliver them in any order, and an
older version never replaces a newer one. What is in Valkey but not signed with our keys is replaced.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from control import store
from control.models import Override, PolicyRevision, PublishedState
from gateway.contract import codec, keys
from gateway.contract.envelope import EnvelopeRefused, Header, SigningKey, seal, unseal
from gateway.contract.overrides import Overrides, OverrideSpec
from gateway.core.vocabulary import OverrideKind

if TYPE_CHECKING:
    import redis

log = structlog.get_logger("control.publishing")

# KEYS[1] the body's key; ARGV: what is expected there ("" for nothing), the new bytes, channel, message.
_REPLACE = """
local present = redis.call('GET', KEYS[1])
if (present or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
"""
_ATTEMPTS = 3


class Delivery(StrEnum):
    """What became of a delivery."""

    SENT = "sent"
    CURRENT = "current"  # Valkey has this version already
    AHEAD = "ahead"  # Valkey has a newer one: an old backup was restored; `publish --force` starts a new generation
    NOTHING = "nothing"  # there is no revision yet
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class _Body:
    kind: str
    key: str
    version: tuple[int, int, int]
    read: Callable[[], bytes]  # asked only where it has to be sent


def signing_keys() -> tuple[SigningKey, ...]:
    """Ours first, then the previous one while it is rotated."""
    secrets = (settings.SIGNING_KEY, settings.SIGNING_KEY_PREVIOUS)
    return tuple(SigningKey(secret.encode()) for secret in secrets if secret)


def deliver_snapshot(client: "redis.Redis | None" = None) -> Delivery:
    """Send the newest revision, unless Valkey has it."""
    state = _state()
    if state.revision == 0:
        return Delivery.NOTHING
    body = _Body(
        "snapshot", keys.SNAPSHOT, (state.generation, 0, state.revision), lambda: _kept(state.revision)
    )
    return _deliver(body, client)


def _kept(number: int) -> bytes:
    return bytes(PolicyRevision.objects.values_list("body", flat=True).get(number=number))


def deliver_overrides(client: "redis.Redis | None" = None) -> Delivery:
    """Send the overrides in force, unless Valkey has this version of the set."""
    state = _state()
    version = state.overrides_version
    return _deliver(
        _Body(
            "overrides",
            keys.OVERRIDES,
            (state.generation, 0, version),
            lambda: codec.encode(overrides_body(version)),
        ),
        client,
    )


def republish_if_behind(client: "redis.Redis | None" = None) -> dict[str, Delivery]:
    """For the tick, each second: send whatever Valkey lacks. Costs two reads where it lacks nothing."""
    return {"snapshot": deliver_snapshot(client), "overrides": deliver_overrides(client)}


def overrides_body(version: int, now: datetime | None = None) -> Overrides:
    """The set of overrides that gateways have to obey."""
    rows = Override.objects.filter(released_at__isnull=True, expires_at__gt=now or timezone.now()).order_by(
        "id"
    )
    return Overrides(version=version, overrides=tuple(_spec(row) for row in rows))


def force_generation(client: "redis.Redis | None" = None) -> int:
    """Begin a generation above both the database's and Valkey's: gateways then accept what looks older to them.

    Within `models.writing`; the caller delivers after the commit.

    Raises:
        redis.RedisError: Valkey must be asked for its generation, and can't be.
    """
    connection = client or store.connect()
    present = [_present(connection, kind, key)[1] for kind, key in _PLACES]
    with transaction.atomic():
        state, _ = PublishedState.objects.select_for_update().get_or_create(id=1)
        state.generation = 1 + max(state.generation, *(version[0] for version in present))
        state.save()
    return state.generation


_PLACES = (("snapshot", keys.SNAPSHOT), ("overrides", keys.OVERRIDES))


def _state() -> PublishedState:
    return PublishedState.objects.filter(id=1).first() or PublishedState()


def _spec(row: Override) -> OverrideSpec:
    return OverrideSpec(
        id=row.key,
        kind=OverrideKind(row.kind),
        target=row.target,
        value=row.value,
        actor=row.actor,
        reason=row.reason,
        created_at=row.created_at.timestamp(),
        expires_at=row.expires_at.timestamp(),
    )


def _deliver(body: _Body, client: "redis.Redis | None") -> Delivery:
    """Send one body; says in the log where Valkey can't be reached, and leaves it to the tick."""
    connection = client or store.connect()
    try:
        return _replace(connection, body)
    except store.StoreFault as fault:
        log.warning(
            "not delivered, the tick will", kind=body.kind, version=body.version[2], why=type(fault).__name__
        )
        return Delivery.UNREACHABLE
    finally:
        if client is None:
            connection.close()


def _replace(connection: "redis.Redis", body: _Body) -> Delivery:
    for _ in range(_ATTEMPTS):
        present, version = _present(connection, body.kind, body.key)
        if version == body.version:
            return Delivery.CURRENT
        if version > body.version:
            return Delivery.AHEAD
        generation, epoch, seq = body.version
        header = Header(
            kind=body.kind, generation=generation, epoch=epoch, seq=seq, sent_at=time.time(), key_id=""
        )
        sealed = seal(signing_keys()[0], header, body.read())
        note = f"{body.kind} {seq}"
        if connection.eval(_REPLACE, 1, body.key, present, sealed, keys.CHANGES, note):
            log.info("delivered", kind=body.kind, version=seq)
            return Delivery.SENT
    return Delivery.AHEAD  # others replaced it each time: they are newer


def _present(connection: "redis.Redis", kind: str, key: str) -> tuple[bytes, tuple[int, int, int]]:
    """What is there, and its version; (0, 0, 0) for nothing and for what is not ours."""
    data = connection.get(key) or b""
    if not isinstance(data, bytes) or not data:
        return b"", (0, 0, 0)
    try:
        header, _ = unseal(signing_keys(), kind, data)
    except EnvelopeRefused as refusal:
        log.warning("replacing what is not ours", kind=kind, why=refusal.reason)
        return data, (0, 0, 0)
    return data, header.version
