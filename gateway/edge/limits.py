"""What one connection may cost. Times in seconds, sizes in bytes; the defaults are those of docs/settings.md."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One value for every bound of the edge.

    Attributes:
        head_s: from the first byte of a request (or from the connection) to the end of its headers; absolute.
        idle_s: between an answer and the next request.
        body_grace_s: how long a body may take before its rate counts.
        body_rate_per_s: bytes per second that a body must arrive with, on average, after the grace.
        stall_s: how long a caller may take nothing of an answer before it is cut.
        linger_s: how long the rest of a refused request is still taken in and thrown away, so that the refusal is
            not lost to a reset.
        head_bytes: request line and headers together.
        headers: number of header fields.
        url_bytes: the request target.
        body_bytes: the body, decoded.
        pipelined: requests that may wait on one connection behind the one being answered.
        high_water: unsent bytes of an answer in this process, beyond which its producer waits.
        send_buffer: unsent bytes in the kernel (SO_SNDBUF).
    """

    head_s: float = 5.0
    idle_s: float = 15.0
    body_grace_s: float = 10.0
    body_rate_per_s: float = 1024.0
    stall_s: float = 30.0
    linger_s: float = 1.0
    head_bytes: int = 16 * 1024
    headers: int = 100
    url_bytes: int = 8 * 1024
    body_bytes: int = 8 * 1024 * 1024
    pipelined: int = 16
    high_water: int = 64 * 1024
    send_buffer: int = 128 * 1024
