"""One leader: a lease in Valkey with a fencing epoch, and publishing that only its holder can do.

A new holder gets epoch 1 + the largest seen anywhere (Valkey's counter, the gateways' reports, its own), so that not
even FLUSHALL makes gateways refuse for ever. Publishing checks the lease in the same script that writes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.contract import keys

if TYPE_CHECKING:
    import redis

LEASE_MS: Final = 3000

# KEYS: lease, epoch. ARGV: who, lease in ms, largest epoch seen elsewhere. Returns the epoch, 0 where another holds it.
# A counter that is no count (somebody wrote there) begins anew above what was seen elsewhere.
_ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
local epoch = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
if not (epoch >= 0 and epoch < 1e14 and epoch == math.floor(epoch)) then epoch = 0 end
if holder == ARGV[1] and epoch > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return epoch
end
if holder and holder ~= ARGV[1] then return 0 end
epoch = math.max(epoch, tonumber(ARGV[3])) + 1
redis.call('SET', KEYS[2], epoch)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return epoch
"""

# KEYS: lease, epoch, bounds, frame, frames. ARGV: who, epoch, bounds, frame envelope, frame body, seq, channel, length.
_PUBLISH = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[3], ARGV[3])
redis.call('PUBLISH', ARGV[7], 'bounds ' .. ARGV[6])
redis.call('SET', KEYS[4], ARGV[4])
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[8], '*', 'f', ARGV[5])
redis.call('PUBLISH', ARGV[7], 'frame ' .. ARGV[6])
return 1
"""

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


@dataclass(frozen=True, slots=True)
class Published:
    """What one step sends."""

    bounds: bytes
    frame: bytes
    frame_body: bytes
    seq: int


class Lease:
    """The lease as one contender sees it."""

    def __init__(self, client: "redis.Redis", holder: str) -> None:
        self._client = client
        self._holder = holder
        self.epoch = 0

    def acquire(self, seen_epoch: int) -> bool:
        """Take or prolong the lease; `epoch` is then ours. False where another holds it.

        Raises:
            redis.RedisError: Valkey can't be reached.
        """
        largest = max(seen_epoch, self.epoch)
        epoch = int(self._client.eval(_ACQUIRE, 2, keys.LEASE, keys.EPOCH, self._holder, LEASE_MS, largest))
        self.epoch = epoch or self.epoch
        return epoch > 0

    def publish(self, what: Published) -> bool:
        """Write bounds and frame and tell everybody; False where the lease was lost meanwhile: nothing is written.

        Raises:
            redis.RedisError: Valkey can't be reached.
        """
        names = (keys.LEASE, keys.EPOCH, keys.BOUNDS, keys.FRAME, keys.FRAMES)
        values = (self._holder, self.epoch, what.bounds, what.frame, what.frame_body, what.seq)
        return bool(self._client.eval(_PUBLISH, 5, *names, *values, keys.CHANGES, keys.FRAMES_MAX))

    def release(self) -> None:
        """Give the lease back, so that another takes over at once.

        Raises:
            redis.RedisError: Valkey can't be reached; the lease then ends by itself.
        """
        self._client.eval(_RELEASE, 1, keys.LEASE, self._holder)
