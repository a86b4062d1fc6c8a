"""The simulated engine's HTTP surface, as a bare ASGI application.

Whoever closes the connection frees its seat: at the next step, or (llama.cpp, for callers that did not ask for a
stream) only after a second without any result, later still while `/metrics` is read often, as the real server does.
"""

import asyncio
import os
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from gateway.simulation.serve import exposition, wire
from gateway.simulation.serve.driver import Driver, Signal, Stream
from gateway.simulation.serve.exchange import METRICS_TYPE, Exchange, Receive, Scope, Send
from gateway.simulation.serve.faults import FaultKind, FaultOrder
from gateway.simulation.serve.framing import (
    BUSY_MESSAGE,
    CRASH_MESSAGE,
    DONE,
    Dialect,
    Framing,
    error_fields,
    event,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LLAMA_NOTICES_S = 1.0


class EngineApp:
    """Routes: the OpenAI API, the engine's telemetry, and `/sim/*` to set faults and read what really happened."""

    def __init__(self, driver: Driver, *, dialect: Dialect, model: str, seed: int) -> None:
        self.driver = driver
        self.dialect = dialect
        self.model = model
        self._dice = random.Random(seed)  # noqa: S311  # a model, not a secret
        self._numbers = 0
        self._loop: asyncio.Task[None] | None = None
        self._routes: dict[tuple[str, str], Callable[[Exchange], Awaitable[None]]] = {
            ("POST", "/v1/chat/completions"): self._complete,
            ("POST", "/v1/completions"): self._complete,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/sim/faults"): self._order_fault,
            ("GET", "/sim/faults"): self._show_faults,
            ("GET", "/sim/state"): self._show_state,
        }
        if dialect is Dialect.LLAMA_CPP:
            self._routes[("GET", "/slots")] = self._slots
            self._routes[("GET", "/props")] = self._props

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's start and stop."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        exchange = Exchange(scope, receive, send)
        route = self._routes.get((exchange.method, exchange.path))
        if route is None:
            await exchange.answer(404, error_fields(self.dialect, 404, "Not Found"))
        elif exchange.path.startswith("/sim/") and not exchange.is_loopback:
            await exchange.answer(403, error_fields(self.dialect, 403, "Only from loopback"))
        else:
            await route(exchange)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._loop = asyncio.create_task(self.driver.run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._loop.cancel()
        with suppress(asyncio.CancelledError):
            await self._loop
        await send({"type": "lifespan.shutdown.complete"})

    async def _complete(self, exchange: Exchange) -> None:
        if await self._is_refused_by_fault(exchange):
            return
        try:
            raw = await exchange.read_body()
            asked = wire.read(raw, is_chat=exchange.path == "/v1/chat/completions", dice=self._dice)
            self._check(asked)
        except wire.WrongRequest as wrong:
            fields = error_fields(self.dialect, wrong.status, wrong.message, wrong.param)
            await exchange.answer(wrong.status, fields)
            return
        self._numbers += 1
        key = f"{'chatcmpl' if asked.is_chat else 'cmpl'}-sim{self._numbers:012d}"
        stream = self.driver.submit(key, asked)
        if stream is None:
            await exchange.answer(503, error_fields(self.dialect, 503, BUSY_MESSAGE))
            return
        framing = Framing(
            dialect=self.dialect, asked=asked, answer_id=key, created=self.driver.wall_s(), model=self.model
        )
        watcher = asyncio.create_task(_watch(exchange, stream))
        try:
            if asked.body.stream:
                await self._stream(framing, stream, exchange)
            else:
                await self._aggregate(framing, stream, exchange)
        finally:
            watcher.cancel()
            self.driver.leave(stream, notices_after_s=self._notices_after_s(asked))

    def _check(self, asked: wire.Asked) -> None:
        """Refuse what this engine could not compute; raises WrongRequest."""
        model = asked.body.model
        if self.dialect is Dialect.VLLM and model and model != self.model:
            raise wire.WrongRequest(404, f"The model `{model}` does not exist.", "model")
        context = self.driver.engine.spec.context_tokens
        if asked.prompt_tokens + asked.output_tokens > context:
            raise wire.WrongRequest(
                400,
                f"This model's maximum context length is {context} tokens, but {asked.prompt_tokens} are in the "
                f"input and {asked.output_tokens} are to be generated.",
                "messages" if asked.is_chat else "prompt",
            )

    def _notices_after_s(self, asked: wire.Asked) -> float:
        if self.dialect is Dialect.VLLM or asked.body.stream:
            return 0.0
        return LLAMA_NOTICES_S

    async def _is_refused_by_fault(self, exchange: Exchange) -> bool:
        """Answer in the manner of the fault in force, if one forbids to serve."""
        faults, now = self.driver.faults, self.driver.now()
        if (busy := faults.get(FaultKind.BUSY, now)) is not None:
            wait = busy.retry_after
            headers = () if wait is None else ((b"retry-after", b"%d" % round(wait)),)
            await exchange.answer(503, error_fields(self.dialect, 503, BUSY_MESSAGE), headers=headers)
        elif faults.get(FaultKind.BUSY_LATE, now) is not None:
            await exchange.start_events()
            body = event(error_fields(self.dialect, 503, BUSY_MESSAGE)) + DONE
            await exchange.send_body(body)
        elif faults.get(FaultKind.CRASH, now) is not None:
            await exchange.answer(500, error_fields(self.dialect, 500, CRASH_MESSAGE))
        elif (errors := faults.get(FaultKind.ERRORS, now)) is not None:
            fields = error_fields(self.dialect, errors.status, "A fault that was ordered")
            await exchange.answer(errors.status, fields)
        else:
            return await self._is_unanswerable(exchange)
        return True

    async def _is_unanswerable(self, exchange: Exchange) -> bool:
        faults, now = self.driver.faults, self.driver.now()
        if faults.get(FaultKind.CUT, now) is not None:
            return True  # nothing is sent: the server closes the connection
        if faults.get(FaultKind.GARBAGE, now) is None:
            return False
        await exchange.start_events()
        await exchange.send_body(b'data: {"id": \xff\xfe\n\n<html>502 Bad Gateway</html>\n')
        return True

    async def _stream(self, framing: Framing, stream: Stream, exchange: Exchange) -> None:
        """Relay tokens as they come; the status line leaves with the first of them."""
        has_started = False
        while True:
            item = await stream.items.get()
            if item in (Signal.LEFT, Signal.CUT):
                return
            if not has_started:
                await exchange.start_events()
                await exchange.send_body(framing.opening(), is_last=False)
                has_started = True
            if not isinstance(item, int):
                body = event(error_fields(self.dialect, 500, CRASH_MESSAGE)) + DONE
                await exchange.send_body(body)
                return
            await exchange.send_body(framing.token(item), is_last=False)
            if item == len(framing.asked.pieces) - 1:
                await exchange.send_body(framing.closing())
                return

    async def _aggregate(self, framing: Framing, stream: Stream, exchange: Exchange) -> None:
        """Wait for the last token and answer once."""
        item: int | Signal = 0
        while isinstance(item, int):
            item = await stream.items.get()
            if item == len(framing.asked.pieces) - 1:
                await exchange.answer(200, framing.whole())
                return
        if item is Signal.CRASHED:
            await exchange.answer(500, error_fields(self.dialect, 500, CRASH_MESSAGE))

    async def _models(self, exchange: Exchange) -> None:
        entry = {
            "id": self.model,
            "object": "model",
            "created": self.driver.wall_s(),
            "owned_by": self.dialect.value,
        }
        context = self.driver.engine.spec.context_tokens
        await exchange.answer(200, {"object": "list", "data": [{**entry, "max_model_len": context}]})

    async def _health(self, exchange: Exchange) -> None:
        if self.driver.faults.get(FaultKind.CRASH, self.driver.now()) is not None:
            await exchange.answer(503, {"status": "error"})
        elif self.dialect is Dialect.LLAMA_CPP:
            await exchange.answer(200, {"status": "ok"})
        else:
            await exchange.answer(200, b"", kind=METRICS_TYPE)

    async def _metrics(self, exchange: Exchange) -> None:
        slow = self.driver.faults.get(FaultKind.SLOW_METRICS, self.driver.now())
        if slow is not None:
            await asyncio.sleep(slow.delay_s)
        self.driver.metrics_read_at = self.driver.now()
        if self.dialect is Dialect.VLLM:
            text = exposition.vllm_metrics(self.driver, self.model)
        else:
            await self.driver.step_end()  # llama.cpp answers from its decode loop
            text = exposition.llama_cpp_metrics(self.driver)
        await exchange.answer(200, text.encode(), kind=METRICS_TYPE)

    async def _slots(self, exchange: Exchange) -> None:
        await self.driver.step_end()
        await exchange.answer(200, exposition.llama_cpp_slots(self.driver))

    async def _props(self, exchange: Exchange) -> None:
        await exchange.answer(200, exposition.llama_cpp_props(self.driver, self.model))

    async def _order_fault(self, exchange: Exchange) -> None:
        try:
            order = msgspec.json.decode(await exchange.read_body(), type=FaultOrder)
        except (msgspec.DecodeError, wire.WrongRequest) as wrong:
            await exchange.answer(400, error_fields(self.dialect, 400, str(wrong)))
            return
        if order.fault is FaultKind.EXIT:
            os._exit(1)  # what a killed engine looks like: connections refused at once
        self.driver.order(order)
        await self._show_faults(exchange)

    async def _show_faults(self, exchange: Exchange) -> None:
        await exchange.answer(200, {"faults": self.driver.faults.in_force(self.driver.now())})

    async def _show_state(self, exchange: Exchange) -> None:
        engine = self.driver.engine
        state = {
            "running": len(engine.running),
            "waiting": len(engine.waiting),
            "kv_ratio": engine.kv_ratio,
            "counters": engine.counters,
        }
        await exchange.answer(200, state)


async def _watch(exchange: Exchange, stream: Stream) -> None:
    """Tell the stream when its caller has gone."""
    await exchange.disconnected()
    stream.items.put_nowait(Signal.LEFT)
