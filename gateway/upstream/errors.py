"""How an exchange with a backend can fail. Each names the fault that the gate counts (`core.breakers`)."""

from typing import ClassVar

from gateway.core.vocabulary import Fault


class UpstreamError(Exception):
    """The backend's fault. The message names no host and may be logged.

    Attributes:
        fault: what to report to the gate.
        request_sent: whether the backend may have seen the request; if not, another one may be tried.
    """

    fault: ClassVar[Fault] = Fault.CONNECTION

    def __init__(self, message: str, *, request_sent: bool = True) -> None:
        super().__init__(message)
        self.request_sent = request_sent


class ConnectError(UpstreamError):
    """No connection, or it was closed before any byte of an answer."""


class FirstByteTimeout(UpstreamError):  # noqa: N818  # named as the fault
    """The request was sent, but the first byte of the body did not come in time."""

    fault = Fault.FIRST_BYTE_TIMEOUT


class IdleTimeout(UpstreamError):  # noqa: N818  # named as the fault
    """The body had begun, then stopped for too long."""

    fault = Fault.IDLE_TIMEOUT


class TotalTimeout(UpstreamError):  # noqa: N818  # named as the fault
    """The exchange took too long as a whole."""

    fault = Fault.TOTAL_TIMEOUT


class MidstreamDeath(UpstreamError):  # noqa: N818  # named as the fault
    """The connection broke inside an answer."""

    fault = Fault.MIDSTREAM


class ProtocolError(UpstreamError):
    """What came is not an HTTP answer that can be relayed: malformed, too large, an unknown coding."""

    fault = Fault.SERVER_ERROR


class AbortedError(Exception):
    """This side aborted the exchange while somebody was waiting for it. Nobody's fault."""
