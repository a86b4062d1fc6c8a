"""A second reader of HTTP/1.1 requests, written from RFC 9112 alone: what the gateway takes must be what this reads.

It shares nothing with the gateway's parser. It is as strict as the gateway means to be, but does not judge fields that
cannot change where a message ends or where it goes.
"""

import re
from dataclasses import dataclass

_TOKEN = rb"[!#$%&'*+.^`|~0-9A-Za-z-]+"
_LINE = re.compile(rb"(" + _TOKEN + rb") +([!-~]+) HTTP/1\.([01])")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]+)(?:;[\t -~\x80-\xff]*)?")


@dataclass(frozen=True, slots=True)
class Read:
    """One request."""

    method: bytes
    target: bytes
    body: bytes
    ends: bool  # nothing after it is a request


def read_requests(data: bytes) -> list[Read]:
    """The requests at the beginning of a byte stream, until something that is none or is incomplete."""
    found: list[Read] = []
    while True:
        data = data.lstrip(
            b"\r\n"
        )  # RFC 9112 section 2.2; common readers skip single CR and LF too: no bytes are left over
        try:
            one = _read_one(data)
        except ValueError:
            return found
        if one is None:
            return found
        request, data = one
        found.append(request)
        if request.ends:
            return found


def _read_one(data: bytes) -> tuple[Read, bytes] | None:
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    lines = head.split(b"\r\n")
    line = _LINE.fullmatch(lines[0])
    if line is None:
        raise ValueError("request line")
    fields: dict[bytes, list[bytes]] = {}
    for text in lines[1:]:
        field = _FIELD.fullmatch(text)
        if field is None:
            raise ValueError("field")
        fields.setdefault(field[1].lower(), []).append(field[2])
    is_old = line[3] == b"0"
    taken = _body(fields, rest, is_old=is_old)
    if taken is None:
        return None
    options = [
        option.strip().lower() for value in fields.get(b"connection", []) for option in value.split(b",")
    ]
    return Read(line[1], line[2], taken[0], is_old or b"close" in options), taken[1]


def _body(fields: dict[bytes, list[bytes]], rest: bytes, *, is_old: bool) -> tuple[bytes, bytes] | None:
    codings, lengths = fields.get(b"transfer-encoding", []), fields.get(b"content-length", [])
    if (codings and (lengths or is_old)) or len(codings) > 1 or len(lengths) > 1:
        raise ValueError("framing")
    if codings:
        if codings[0].lower() != b"chunked":
            raise ValueError("coding")
        return _chunks(rest)
    if not lengths:
        return b"", rest
    if not re.fullmatch(rb"0|[1-9][0-9]*", lengths[0]):
        raise ValueError("length")
    length = int(lengths[0])
    return (rest[:length], rest[length:]) if len(rest) >= length else None


def _chunks(rest: bytes) -> tuple[bytes, bytes] | None:
    body = b""
    while True:
        line, found, rest = rest.partition(b"\r\n")
        if not found:
            return None
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise ValueError("chunk size")
        size = int(match[1], 16)
        if len(rest) < size + 2:
            return None
        if rest[size : size + 2] != b"\r\n":
            raise ValueError("chunk end, or a trailer")
        body, rest = body + rest[:size], rest[size + 2 :]
        if size == 0:
            return body, rest
