"""Answers that are sent in one piece: built of a stream for callers that did not ask for one, or passed on as they are.

An engine's answer may be large (a batch of embeddings), but it has an end: more than `MOST_BYTES` is no answer.
"""

from gateway.aggregate import NoAnswerError, for_dialect
from gateway.proxy.call import Call
from gateway.proxy.relay import EngineError, Observer, dialect_of
from gateway.sse import EventReader, read_usage
from gateway.upstream import Exchange, MidstreamDeath, ProtocolError

MOST_BYTES = 64 * 1024 * 1024


class Builder:
    """One answer in the making."""

    __slots__ = ("_aggregate", "_call", "_observer", "_reader", "_seen", "_size")

    def __init__(self, call: Call, observer: Observer) -> None:
        dialect = dialect_of(call)
        self._call = call
        self._observer = observer
        self._reader = call.reader = EventReader(dialect, collect=True)
        self._aggregate = for_dialect(dialect)
        self._seen = self._size = 0

    async def build(self, exchange: Exchange) -> bytes:
        """One JSON answer of the backend's stream.

        Raises:
            EngineError: the engine reported an error in an event.
            UpstreamError: the backend failed, or its stream did not make an answer.
            AbortedError: this side aborted.
        """
        try:
            async for data in exchange:
                self._reader.feed(data)
                self._take(len(data))
            self._reader.finish()
            self._take(0)
            return self._aggregate.answer()
        except NoAnswerError as error:
            raise MidstreamDeath(str(error)) from error

    def _take(self, size: int) -> None:
        reader = self._reader
        self._size += size
        if reader.content_events != self._seen:
            self._observer.content(self._call, reader.content_events - self._seen)
            self._seen = reader.content_events
        if reader.error is not None:
            raise EngineError(reader.error)
        if reader.truncated or self._size > MOST_BYTES:
            raise ProtocolError("the backend's answer is too large")
        for payload in reader.take_payloads():
            self._aggregate.take(payload)


async def read(call: Call, exchange: Exchange) -> bytes:
    """The backend's own JSON answer; its usage is noted.

    Raises:
        UpstreamError: the backend failed.
        AbortedError: this side aborted.
    """
    body = await exchange.read_all(MOST_BYTES)
    reader = call.reader = EventReader()
    reader.usage = read_usage(body)
    return body
