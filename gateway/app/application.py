"""The application. See the package for the order of what it does."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
from msgspec import Struct

from gateway.app.intake import (
    Bounds,
    CallerLeftError,
    Incoming,
    OverloadedError,
    Receive,
    Scope,
    Send,
    find_grant,
    lifespan,
    read_body,
    too_large,
)
from gateway.auth import Caller, authenticate
from gateway.clocks import Clocks
from gateway.core.commands import RetryAfter
from gateway.core.vocabulary import ShedReason
from gateway.departure import EXTENSION, Departure
from gateway.faults import CallerError, CallerFault
from gateway.gatekeeper import Gatekeeper
from gateway.proxy import Bodies, Call, Proxy, Reply
from gateway.proxy.wire import standing_headers
from gateway.quotas import Standing
from gateway.refusals.answers import JSON, Answer, Headers, Shed, Wording, of_caller_error, of_shed
from gateway.requests import body as bodies
from gateway.requests import hints as hints_of
from gateway.requests.endpoints import ENDPOINTS, MODELS_PATH, Endpoint
from gateway.state import Applied, State
from gateway.tally import Exchange, Tally

BUDGET_SHARE = 0.95  # of the memory for bodies: above it new requests are shed
OVERLOAD_RETRY_S = 2
CLIENT_CLOSED_STATUS = 499  # in logs and counters only
CRASH_STATUS = 500  # the edge answers it; nothing that a caller sends may lead here
_OTHER_PATH = "(other)"
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, kw_only=True)
class App:
    """See the module. One per process.

    Attributes:
        new_id: gives the next request id, unique for ever.
        standing: what a (tenant, pool) has left of its quotas; None where it has none.
        bodies: the memory that request bodies take.
        raises_ignored: wishes for a higher tier than the caller has; they change nothing and are counted.
    """

    proxy: Proxy
    keeper: Gatekeeper
    state: State
    tally: Tally
    clocks: Clocks
    settings: Bounds
    new_id: Callable[[], str]
    standing: Callable[[str, str], Standing | None]
    bodies: Bodies = field(default_factory=Bodies)
    raises_ignored: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        path = scope["path"]
        endpoint = ENDPOINTS.get(path)
        record = Exchange(
            at=self.clocks.wall(),
            request_id=self.new_id(),
            gateway=self.settings.gateway_id,
            method=scope["method"],
            path=path if endpoint is not None or path == MODELS_PATH else _OTHER_PATH,
        )
        began_at = self.clocks.monotonic()
        try:
            await self._answer(
                scope, receive, Reply(send, record, partial(self._common_headers, record)), record
            )
        except CallerLeftError:
            record.status = CLIENT_CLOSED_STATUS
        except asyncio.CancelledError:
            record.status = record.status or CLIENT_CLOSED_STATUS
            raise
        finally:
            if not record.outcome:  # else the proxy has told it
                record.status = record.status or CRASH_STATUS
                record.total_s = self.clocks.monotonic() - began_at
                self.tally.ended(record)

    async def _answer(self, scope: Scope, receive: Receive, reply: Reply, record: Exchange) -> None:
        endpoint = ENDPOINTS.get(scope["path"])
        try:
            if endpoint is not None:
                await self._proxied(scope, receive, reply, record, endpoint)
            else:
                await self._listed(scope, reply, record)
        except CallerError as error:
            record.error = error.fault.value
            wording = Wording(record.request_id, is_anthropic=endpoint is not None and endpoint.is_anthropic)
            await reply.whole(of_caller_error(error, wording))

    def _common_headers(self, record: Exchange) -> Headers:
        """What every answer tells: its id, how near this caller's tier is to shedding, what is left of its quotas."""
        headers: Headers = [(b"x-request-id", record.request_id.encode())]
        if record.pool:
            pressure = self.keeper.pressure(record.pool, record.tier)
            headers.append((b"x-sluicegate-pressure", b"%.2f" % min(1.0, max(0.0, pressure))))
            standing = self.standing(record.tenant, record.pool)
            if standing is not None:
                headers += standing_headers(standing)
        return headers

    # --- GET /v1/models -----------------------------------------------------------------------------------------

    async def _listed(self, scope: Scope, reply: Reply, record: Exchange) -> None:
        if scope["path"] != MODELS_PATH:
            raise CallerError(CallerFault.UNKNOWN_PATH, "This path is not served here.")
        if scope["method"] != "GET":
            raise CallerError(CallerFault.WRONG_METHOD, "Only GET is served here.")
        applied = self.state.applied
        if applied is None:
            await self._unready(reply, Wording(record.request_id))
            return
        caller = self._authenticated(applied, dict(scope["headers"]), record)
        created = int(applied.snapshot.created_at)
        models = [
            {"id": name, "object": "model", "created": created, "owned_by": "sluicegate"}
            for name in applied.models_of(caller.tenant.name)
        ]
        await reply.whole(Answer(200, [JSON], _encode({"object": "list", "data": models})))

    # --- proxied endpoints --------------------------------------------------------------------------------------

    async def _proxied(
        self, scope: Scope, receive: Receive, reply: Reply, record: Exchange, endpoint: Endpoint
    ) -> None:
        if scope["method"] != "POST":
            raise CallerError(CallerFault.WRONG_METHOD, "Only POST is served here.")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        wording = Wording(
            record.request_id,
            endpoint.is_anthropic,
            hints_of.language(headers[b"accept-language"]) if b"accept-language" in headers else "en",
        )
        applied = self.state.applied
        if applied is None:
            await self._unready(reply, wording)
            return
        caller = self._authenticated(applied, headers, record)
        early = self._early_refusal(headers)
        if early is not None:
            await self._refuse(reply, early, wording)
            return
        began_at = self.clocks.monotonic()
        known = Known(applied, caller, record, reply, wording, began_at)
        try:
            call = await self._read(endpoint, headers, receive, known)
        except OverloadedError:
            await self._refuse(reply, ShedReason.GATEWAY_OVERLOAD, wording)
            return
        try:
            await self._watched(call, scope, receive)
        finally:
            call.drop_body()

    async def _read(
        self, endpoint: Endpoint, headers: dict[bytes, bytes], receive: Receive, known: "Known"
    ) -> Call:
        """The body, read and understood; its memory is the call's from here on.

        Raises:
            CallerError, CallerLeftError, OverloadedError: as `read_body` and `_understand`.
        """
        incoming = Incoming(self.bodies, BUDGET_SHARE * self.settings.buffer_budget_bytes)
        try:
            body = await read_body(receive, self.settings.max_body_bytes, incoming)
            known.record.bytes_in = len(body)
            call = self._understand(endpoint, headers, body, known)
            incoming.hand_over()
        finally:
            incoming.drop()
        return call

    def _authenticated(self, applied: Applied, headers: dict[bytes, bytes], record: Exchange) -> Caller:
        caller = authenticate(applied, headers, self.settings.key_pepper, self.clocks.wall())
        record.tenant = caller.tenant.name
        record.key = caller.key.public_id
        return caller

    def _early_refusal(self, headers: dict[bytes, bytes]) -> ShedReason | None:
        """What is refused whatever the body says."""
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"", b"identity"):
            raise CallerError(
                CallerFault.CODED_BODY, "Request bodies must not be compressed.", "Content-Encoding"
            )
        if self.keeper.is_draining:
            return ShedReason.DRAINING
        length = headers.get(b"content-length", b"0")
        announced = int(length) if length.isdigit() else 0
        if announced > self.settings.max_body_bytes:
            raise too_large(self.settings.max_body_bytes)
        if self.bodies.held_bytes + announced > BUDGET_SHARE * self.settings.buffer_budget_bytes:
            return ShedReason.GATEWAY_OVERLOAD
        return None

    def _understand(
        self, endpoint: Endpoint, headers: dict[bytes, bytes], body: bytes, known: "Known"
    ) -> Call:
        """What the request asks for, and of which pool.

        Raises:
            CallerError: it makes no sense, or asks for a model that is unknown or not granted.
        """
        hints = hints_of.read(headers)
        ask = bodies.read(endpoint, body)
        applied, record = known.applied, known.record
        pool, grant = find_grant(applied, known.caller.tenant.name, ask.model)
        granted = tier = known.caller.tier(grant.tier)
        if hints.tier is not None:
            tier, is_ignored = hints_of.lowered_tier(hints.tier, granted, applied.tiers)
            self.raises_ignored += is_ignored
        record.pool, record.tier, record.model = pool.policy.name, tier, ask.model
        record.stream, record.is_retry, record.traceparent = ask.stream, hints.is_retry, hints.traceparent
        record.client_id = hints.client_id
        replaced = (known.caller.tenant.refusal_messages, applied.tiers[tier].refusal_messages)
        wording = known.wording
        if replaced[0] or replaced[1]:
            wording = Wording(wording.request_id, wording.is_anthropic, wording.language, replaced)
        return Call(
            endpoint=endpoint,
            ask=ask,
            hints=hints,
            headers=headers,
            body=body,
            bodies=self.bodies,
            applied=applied,
            pool=pool,
            grant=grant,
            tier=tier,
            arrived_at=known.arrived_at,
            record=record,
            reply=known.reply,
            wording=wording,
            keeper=self.keeper,
        )

    async def _watched(self, call: Call, scope: Scope, receive: Receive) -> None:
        """Serve, and let the caller's departure stop it at once."""
        departure: Departure | None = (scope.get("extensions") or {}).get(EXTENSION)
        if departure is not None:
            departure.watch(call.leave)
            try:
                await self.proxy.serve(call)
                departure.is_cut = call.reply.is_started and not call.reply.is_complete
            finally:
                departure.forget()
            return
        watcher = asyncio.get_running_loop().create_task(_wait_for_departure(receive, call))
        try:
            await self.proxy.serve(call)
        finally:
            watcher.cancel()
            await asyncio.wait((watcher,))

    # --- refusals without a ticket ------------------------------------------------------------------------------

    async def _unready(self, reply: Reply, wording: Wording) -> None:
        """No snapshot yet: nothing is known, not even whose key this is."""
        await self._refuse(reply, ShedReason.NO_BACKEND, wording)

    async def _refuse(self, reply: Reply, reason: ShedReason, wording: Wording) -> None:
        retry = RetryAfter(self.clocks.monotonic() + OVERLOAD_RETRY_S, OVERLOAD_RETRY_S)
        shed = Shed(reason, retry, float(OVERLOAD_RETRY_S), self.clocks.wall() + OVERLOAD_RETRY_S)
        answer = of_shed(shed, wording)
        close = (b"connection", b"close")  # the body is not read
        await reply.whole(Answer(answer.status, [*answer.headers, close], answer.body))


class Known(Struct, frozen=True):
    """What is known of a request before its body is understood."""

    applied: Applied
    caller: Caller
    record: Exchange
    reply: Reply
    wording: Wording
    arrived_at: float


async def _wait_for_departure(receive: Receive, call: Call) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    call.leave()
