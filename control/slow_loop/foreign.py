"""Keys of ours that hold something of another type: nobody can read them, so they are taken away, and said.

Whoever can write to Valkey could otherwise stop the slow loop for good with one list where a string belongs.
"""

from typing import TYPE_CHECKING, Final

import structlog

from gateway.contract import keys

if TYPE_CHECKING:
    import redis

log = structlog.get_logger("control.slow_loop")

_TYPES: Final = {
    keys.SNAPSHOT: "string",
    keys.BOUNDS: "string",
    keys.OVERRIDES: "string",
    keys.LEASE: "string",
    keys.EPOCH: "string",
    keys.FRAME: "string",
    keys.FRAMES: "stream",
    keys.GATEWAYS: "zset",
}


def remove_foreign(client: "redis.Redis") -> list[str]:
    """Delete what has a wrong type; returns its keys. Publishing writes each of them anew.

    Raises:
        redis.RedisError: Valkey can't be reached.
    """
    pipe = client.pipeline(transaction=False)
    for key in _TYPES:
        pipe.type(key)
    found = dict(zip(_TYPES, pipe.execute(), strict=True))
    foreign = [key for key, kind in found.items() if kind.decode() not in (_TYPES[key], "none")]
    if foreign:
        log.warning("keys of a foreign type are removed", keys=foreign)
        client.delete(*foreign)
    return foreign
