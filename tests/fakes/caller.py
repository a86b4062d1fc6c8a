"""A caller on raw TCP: one connection per request, so that a test decides when and how it leaves."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True)
class Received:
    """A whole answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    is_whole: bool = True  # False: the transfer broke before its end

    def header(self, name: str) -> str | None:
        """The value of a field that may occur once."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) < 2, f"{name} occurs {len(values)} times"
        return values[0] if values else None

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error of an answer in the OpenAI shape."""
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The data of the events; `[DONE]` stays text."""
        blocks = self.body.decode().replace("\r\n", "\n").split("\n\n")
        data = [line[6:] for block in blocks for line in block.split("\n") if line.startswith("data: ")]
        return [item if item == "[DONE]" else json.loads(item) for item in data]

    @property
    def text(self) -> str:
        """What a streamed chat said."""
        choices = [c for e in self.events if isinstance(e, dict) for c in e.get("choices", ())]
        return "".join(c["delta"].get("content") or "" for c in choices)


@dataclass(slots=True)
class Conversation:
    """One request on its way."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    is_whole: bool = False

    async def head(self) -> Self:
        """Read the status line and the headers."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(head[0].split(" ")[1])
        pairs = [line.split(": ", 1) for line in head[1:] if line]
        self.headers = [(name.lower(), value) for name, value in pairs]
        return self

    async def piece(self) -> bytes:
        """The next chunk of a chunked body, or all of another; empty at its end or where the transfer broke."""
        fields = dict(self.headers)
        try:
            if "content-length" in fields:
                data = await self.reader.readexactly(int(fields["content-length"]))
                self.is_whole = True
                return data
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        self.is_whole = size == 0
        return data[:-2]

    async def rest(self) -> Received:
        """Everything that still comes."""
        body = b""
        while not self.is_whole and (data := await self.piece()):
            body += data
        await self.close()
        return Received(self.status, self.headers, body, self.is_whole)

    async def close(self) -> None:
        """Leave in order."""
        self.writer.close()

    async def reset(self) -> None:
        """Leave by a reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def chat(**members: Any) -> dict[str, Any]:
    """The body of the field cases' request."""
    return {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}], **members}


@dataclass(frozen=True, slots=True)
class Caller:
    """Talks to one gateway with one key."""

    port: int
    key: str

    async def open(
        self,
        body: Any = None,
        *,
        path: str = "/v1/chat/completions",
        headers: dict[str, str | None] | None = None,
        method: str = "POST",
    ) -> Conversation:
        """Send a whole request; nothing is read yet. Bytes are sent as they are; a header that is None is left out."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw = body if isinstance(body, bytes) else json.dumps(chat() if body is None else body).encode()
        fields = {
            "host": "gateway.test",
            "authorization": f"Bearer {self.key}",
            "content-type": "application/json",
            "connection": "close",
            **({} if method == "GET" else {"content-length": str(len(raw))}),
            **(headers or {}),
        }
        sent = [f"{name}: {value}" for name, value in fields.items() if value is not None]
        lines = [f"{method} {path} HTTP/1.1", *sent, "", ""]
        writer.write("\r\n".join(lines).encode("latin-1") + (raw if method != "GET" else b""))
        return Conversation(reader, writer)

    async def send(self, body: Any = None, **how: Any) -> Received:
        """Send a request and read its whole answer."""
        conversation = await self.open(body, **how)
        try:
            await conversation.head()
            return await conversation.rest()
        finally:
            conversation.writer.close()
