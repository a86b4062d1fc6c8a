"""Reads a backend's server-sent events while their bytes pass by, untouched.

Decides: where events end, how many carry output, which one is the usage, an error or `[DONE]`, and (when asked) which
single event to leave out. Does not decide what the caller gets for them; does not decode events that carry output.

Event framing: WHATWG HTML, section 9.2. A line ends with LF, CRLF or CR; an empty line ends an event; a cut may fall
anywhere, within a UTF-8 sequence too. Searching bytes is safe: CR and LF never occur inside a multi-byte sequence.
"""

import re

import msgspec

from gateway.sse.payloads import Dialect, ErrorEvent, Usage, carries_output, decode, error_of, usage_of

#: An incomplete event is held back, or kept to be looked into, at most this far: the usage chunk is far smaller.
HOLD_LIMIT = 64 * 1024
#: The same where whole events matter: to build one answer of them, and for `response.completed`, which repeats all.
INSPECT_LIMIT = 8 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")
# Two line ends in a row. The look-ahead keeps CRLF from counting as CR and LF.
_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"


class EventReader:
    """One stream. `feed` returns the bytes to relay; the attributes say what has passed so far.

    Attributes:
        data_events: events with data, `[DONE]` apart; the first one ends the wait for the status line.
        content_events: those that carry output. Engines may put several LLM tokens in one, so it is a lower bound.
        usage: what the engine reported, once it has.
        done: whether `[DONE]` has passed.
        error: the first error event.
        limit: how many bytes of an event are kept to be looked into.
        truncated: an event was too large to be looked into; it has been relayed all the same.
    """

    __slots__ = (
        "_after_cr",
        "_collected",
        "_cuts",
        "_last_was_cut",
        "_oversize",
        "_pending",
        "_relayed",
        "collect",
        "content_events",
        "data_events",
        "dialect",
        "done",
        "error",
        "limit",
        "truncated",
        "usage",
    )

    def __init__(
        self, dialect: Dialect = Dialect.CHAT, *, cut_usage: bool = False, collect: bool = False
    ) -> None:
        """Start at the first byte of a stream.

        Args:
            dialect: the API whose events these are.
            cut_usage: leave out the usage-only event, because the gateway asked for it and the caller did not.
                Incomplete events are then held back until they end, up to HOLD_LIMIT.
            collect: keep the data of each event for `take_payloads`, to build one answer of them.
        """
        self.dialect = dialect
        self.collect = collect
        self.data_events = 0
        self.content_events = 0
        self.usage: Usage | None = None
        self.done = False
        self.error: ErrorEvent | None = None
        self.truncated = False
        self._cuts = cut_usage
        self.limit = INSPECT_LIMIT if collect or dialect is Dialect.RESPONSES else HOLD_LIMIT
        self._collected: list[bytes] = []
        self._pending = bytearray()  # of the event that has not ended
        self._relayed = 0  # so many of them have been returned already
        self._oversize = False  # ... and so many that they are not kept
        self._after_cr = False  # an LF that comes now belongs to the event before
        self._last_was_cut = False

    @property
    def at_boundary(self) -> bool:
        """Whether the relayed bytes end between two events: a comment or an error event may be put here."""
        return not self._relayed and not self._oversize

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the stream; returns those to relay now (all of them, or less if one is held or cut)."""
        if self._after_cr and data:
            return self._after_return(data)
        if self._pending or _CR in data:
            return self._resume(data)
        begin, kept = 0, data
        while (end := data.find(b"\n\n", begin) + 2) >= 2:  # find's -1, past the two bytes
            event = data[begin:end]
            if self._take(event):
                kept = data[:begin] + data[end:]
            begin = end
        return kept if begin == len(data) else self._keep(kept, data[begin:])

    def finish(self) -> bytes:
        """The stream ended in order: an event without its empty line still counts. Returns what was held back."""
        if not self._pending:
            return b""
        event, relayed = bytes(self._pending), self._relayed
        cut = not self._oversize and self._take(event)
        self._pending.clear()
        self._relayed = 0
        return b"" if cut else event[relayed:]

    def take_payloads(self) -> list[bytes]:
        """The data of the events since the last call, `[DONE]` apart (only with `collect`)."""
        payloads, self._collected = self._collected, []
        return payloads

    def _after_return(self, data: bytes) -> bytes:
        self._after_cr = False
        if data[0] != _LF:
            return self.feed(data)
        lead = b"" if self._last_was_cut else b"\n"
        return lead + self.feed(data[1:])

    def _keep(self, kept: bytes, rest: bytes) -> bytes:
        self._pending += rest
        return kept[: len(kept) - len(rest)] + self._tail()

    def _resume(self, data: bytes) -> bytes:
        pending = self._pending
        search_from = max(0, len(pending) - 3)
        pending += data
        ends = [match.end() for match in _EVENT_END.finditer(pending, search_from)]
        out, begin = [], 0
        for end in ends:
            if self._ended(bytes(pending[begin:end])):
                out.append(bytes(pending[begin + self._relayed : end]))
            self._relayed, begin = 0, end
        del pending[:begin]
        self._after_cr = bool(ends) and not pending and data[-1] == _CR
        out.append(self._tail())
        return b"".join(out)

    def _ended(self, event: bytes) -> bool:
        if self._oversize:
            self._oversize = self._last_was_cut = False
            self.data_events += 1
            self.content_events += 1
            return True
        self._last_was_cut = self._take(event)
        return not self._last_was_cut

    def _tail(self) -> bytes:
        """What to relay of the incomplete event; gives up keeping it where it is too large to matter."""
        pending = self._pending
        too_large = len(pending) > self.limit
        if self._cuts and not self._relayed and not too_large:
            return b""
        out = bytes(pending[self._relayed :])
        if too_large:
            self._oversize = self.truncated = True
            del pending[:-3]
        self._relayed = len(pending)
        return out

    def _take(self, event: bytes) -> bool:
        """Note one whole event; True when it is the one to leave out."""
        payload = _data_of(event)
        if payload is None:
            return False
        if payload == b"[DONE]":
            self.done = True
            return False
        self.data_events += 1
        if self.collect:
            self._collected.append(payload)
        if b'"usage"' in payload or b'"error"' in payload:
            return self._look_into(payload)
        self.content_events += carries_output(payload, self.dialect)
        return False

    def _look_into(self, payload: bytes) -> bool:
        try:
            found = decode(payload)
        except (msgspec.DecodeError, RecursionError):
            return False
        error = error_of(found, payload)
        if error is not None:
            self.error = self.error or error
            return False
        usage = usage_of(found, self.usage)
        self.usage = usage or self.usage
        if usage is not None and not found.choices and self._cuts:
            self._cuts = False
            return True
        self.content_events += carries_output(payload, self.dialect)
        return False


def _data_of(event: bytes) -> bytes | None:
    """The data of one event, None for comments. The usual event is one `data:` line that ends with two LF."""
    if event.startswith(b"data:") and event.find(b"\n") == len(event) - 2 and _CR not in event:
        return event[5:-2].lstrip(b" ")
    lines = _LINE_END.split(event.removeprefix(_BYTE_ORDER_MARK))
    # llama.cpp before mid-2025 sends its errors in a field of their own
    data = [
        line.partition(b":")[2].removeprefix(b" ") for line in lines if line.startswith((b"data:", b"error:"))
    ]
    return b"\n".join(data).strip(b" ") if data else None
