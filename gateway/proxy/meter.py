"""Counts what a backend sends for a request, and tells it once to the gate, the tally and the estimators."""

from gateway.clocks import Clocks
from gateway.core.predictor import ChunkEstimator, PromptEstimator
from gateway.core.vocabulary import Fault, Outcome
from gateway.gatekeeper import Gatekeeper
from gateway.proxy.call import Call
from gateway.sse import Usage
from gateway.tally import Tally


class Meter:
    """See the module. Synchronous throughout."""

    __slots__ = ("_chunks", "_clocks", "_keeper", "_prompts", "_tally")

    def __init__(self, keeper: Gatekeeper, tally: Tally, clocks: Clocks) -> None:
        self._keeper = keeper
        self._tally = tally
        self._clocks = clocks
        self._chunks = ChunkEstimator()
        self._prompts = PromptEstimator()

    def estimate_prompt(self, call: Call) -> int:
        """Prompt tokens that a request is expected to have, at least 1."""
        return self._prompts.estimate(call.pool.policy.name, call.ask.text_bytes) + call.ask.flat_tokens

    def dispatched(self, call: Call, backend: str, waited_s: float) -> None:
        """The request goes to a backend now."""
        record = call.record
        record.backend = backend
        if not record.attempts:
            record.wait_s = waited_s
        call.scale = self._chunks.tokens_per_chunk(call.pool.policy.name)
        self._tally.dispatched(record)

    def content(self, call: Call, events: int) -> None:
        """So many events with output came."""
        now = self._clocks.monotonic()
        ticket = call.ticket
        if ticket is None:
            return
        if call.first_token_at is None:
            call.first_token_at = now
            call.record.ttft_s = now - call.arrived_at
            self._tally.first_token(call.record)
        call.last_token_at = now
        if call.scale == 1.0:
            tokens = events
        else:
            call.credit += events * call.scale
            tokens = max(1, int(call.credit))
            call.credit -= tokens
        self._keeper.progress(ticket, tokens, lagged=call.is_lagging)

    def ended(self, call: Call, fault: Fault | None) -> None:
        """The backend is done with it, or failed at it: seat and tokens are given back here."""
        ticket = call.ticket
        if ticket is None or not ticket.is_open:
            return
        usage = call.reader.usage if call.reader is not None else None
        record = call.record
        prompt, output = _known(usage)
        record.prompt_tokens = prompt or call.prompt_estimate
        record.output_tokens = output or call.tokens_so_far() or 0
        if call.inherited:
            prompt = record.prompt_tokens + call.inherited
        if fault is None:
            record.outcome = Outcome.COMPLETED
            self._keeper.finished(ticket, prompt, output)
        else:
            record.outcome = Outcome.FAILED
            record.reason = fault.value
            output = record.output_tokens if call.reader is not None else None
            self._keeper.failed(ticket, fault, prompt, output)
        self._note_pace(call)
        if usage is not None:
            self._learn(call, usage)

    def left(self, call: Call) -> None:
        """The caller left, or another request took the ticket: what is known of it for the access line."""
        record = call.record
        record.outcome = Outcome.ABANDONED
        record.output_tokens = call.tokens_so_far() or 0
        usage = call.reader.usage if call.reader is not None else None
        record.prompt_tokens = _known(usage)[0] or call.prompt_estimate
        self._note_pace(call)

    def _note_pace(self, call: Call) -> None:
        record = call.record
        if call.first_token_at is not None and record.output_tokens > 1:
            record.tpot_s = (call.last_token_at - call.first_token_at) / (record.output_tokens - 1)

    def _learn(self, call: Call, usage: Usage) -> None:
        pool = call.pool.policy.name
        if usage.prompt_tokens:
            self._prompts.learn(pool, call.ask.text_bytes, usage.prompt_tokens - call.ask.flat_tokens)
        events = call.reader.content_events if call.reader is not None else 0
        if events and usage.completion_tokens:
            self._chunks.learn(pool, events, usage.completion_tokens)


def _known(usage: Usage | None) -> tuple[int | None, int | None]:
    """Prompt and output as the engine counted them; a figure that is zero says nothing (absent, negative, absurd)."""
    return (None, None) if usage is None else (usage.prompt_tokens or None, usage.completion_tokens or None)
