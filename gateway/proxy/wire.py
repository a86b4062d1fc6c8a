"""What crosses to a backend and back: targets, and the header fields of both directions, by allowlist."""

import logging
import re

from gateway.contract.snapshot import PoolSpec
from gateway.proxy.call import Call
from gateway.quotas import Allowance, Standing
from gateway.refusals.answers import Headers
from gateway.state import Applied, State
from gateway.upstream import Target, Timeouts

_match_printable = re.compile(rb"[ -~]{1,512}").fullmatch

log = logging.getLogger("sluicegate.proxy")

_TO_BACKEND = (b"tracestate", b"anthropic-version", b"anthropic-beta", b"openai-beta")
_TO_CALLER = frozenset(
    {b"content-type", b"content-language", b"openai-processing-ms", b"openai-version", b"openai-model"}
)
_JSON = (b"content-type", b"application/json")
_ACCEPT_EVENTS = (b"accept", b"text/event-stream")
_ACCEPT_JSON = (b"accept", b"application/json")
STREAM_HEADERS: Headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


class Targets:
    """Parsed addresses of the backends of the snapshot in force; made anew with the next one.

    The newest snapshot counts, not the one that a request began under: the gate may name a backend that is newer.
    """

    __slots__ = ("_allow_private", "_applied", "_state", "_targets")

    def __init__(self, state: State, *, allow_private: bool) -> None:
        self._state = state
        self._allow_private = allow_private
        self._applied: Applied | None = None
        self._targets: dict[tuple[str, str], Target | None] = {}

    def find(self, pool: PoolSpec, backend: str) -> Target | None:
        """Where `backend` is, with its credential and the time-outs of its pool; None where there is no such place."""
        applied = self._state.applied
        if applied is not self._applied:
            self._applied = applied
            self._targets.clear()
        key = (pool.policy.name, backend)
        if key not in self._targets:
            self._targets[key] = self._make(applied, pool, backend) if applied is not None else None
        return self._targets[key]

    def _make(self, applied: Applied, pool: PoolSpec, backend: str) -> Target | None:
        spec = applied.backends.get(backend)
        secret = applied.credentials.get(backend)
        timeouts = Timeouts(
            connect_s=pool.connect_timeout_s,
            first_byte_s=pool.first_byte_timeout_s,
            idle_s=pool.idle_timeout_s,
            total_s=pool.total_timeout_s,
        )
        try:
            return (
                None
                if spec is None
                else Target.parse(
                    spec.url,
                    credential=(b"authorization", b"Bearer " + secret.encode()) if secret else None,
                    timeouts=timeouts,
                    allow_private=self._allow_private,
                )
            )
        except ValueError as error:
            log.warning("backend %s cannot be connected to: %s", backend, error)
            return None


def request_headers(call: Call) -> Headers:
    """What a backend is told: nothing that identifies the caller, nothing that frames or routes."""
    headers: Headers = [
        _JSON,
        _ACCEPT_EVENTS if call.ask.streamable else _ACCEPT_JSON,
        (b"x-request-id", call.record.request_id.encode()),
        (b"x-sluicegate-tier", b"%d" % call.tier),
    ]
    if call.hints.traceparent:
        headers.append((b"traceparent", call.hints.traceparent.encode()))
    given = call.headers
    for name in _TO_BACKEND:
        value = given.get(name)
        if value is not None and _match_printable(value):
            headers.append((name, value))
    return headers


def answer_headers(headers: Headers) -> Headers:
    """What a caller sees of a backend's header fields."""
    return [field for field in headers if field[0] in _TO_CALLER]


def standing_headers(standing: Standing) -> Headers:
    """OpenAI's x-ratelimit fields."""
    headers: Headers = []
    for kind, allowance in ((b"requests", standing.requests), (b"tokens", standing.tokens)):
        if allowance is not None:
            headers += _allowance_headers(kind, allowance)
    return headers


def _allowance_headers(kind: bytes, allowance: Allowance) -> Headers:
    return [
        (b"x-ratelimit-limit-" + kind, b"%d" % allowance.limit),
        (b"x-ratelimit-remaining-" + kind, b"%d" % max(0, allowance.remaining)),
        (b"x-ratelimit-reset-" + kind, _duration(allowance.reset_s)),
    ]


def _duration(seconds: float) -> bytes:
    """As OpenAI writes it: 20ms, 1.5s, 6m0s."""
    if seconds < 1:
        return b"%dms" % max(0, round(seconds * 1000))
    if seconds < 60:  # a minute
        return b"%gs" % round(seconds, 3)
    minutes, rest = divmod(round(seconds), 60)
    return b"%dm%ds" % (minutes, rest)
