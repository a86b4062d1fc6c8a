"""One request's way from its ticket to the last byte of its answer.

`service` asks the gate and carries out its verdict, `relay` passes a stream on, `whole` builds one answer, `call` holds
what is known of a request. Bytes of a backend are passed on untouched; seat, tokens and quota are given back exactly
once, by `Gatekeeper`, whatever happens here.
"""

from gateway.proxy.call import Bodies, Call, Reply
from gateway.proxy.service import Proxy

__all__ = ["Bodies", "Call", "Proxy", "Reply"]
