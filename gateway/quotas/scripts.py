"""The Lua scripts by which gateways share a bound, their arguments and their answers.

Each script is one atomic step on one key, a hash with a field per gateway. Fields of gateways that were not heard of
for `FORGOTTEN_S` are dropped. Redis 7.0 commands only. A server that has forgotten a script (SCRIPT FLUSH, restart)
answers NOSCRIPT; whoever runs it then sends its text.
"""

from dataclasses import dataclass
from hashlib import sha1
from math import isfinite

from gateway.quotas.leases import FORGOTTEN_S, Request
from gateway.valkey import Command, Reply

_FORGOTTEN = f"{FORGOTTEN_S:g}"
KEPT_S = 60  # how long a full bucket is remembered

# Elapsed time is the smaller of the server's clock and of the asker's monotonic one: a jump refills nothing.
# What was granted alone is debited by the difference to what this process had told before (field `o:<gateway>`), so that
# it may be told again where an answer was lost.
# level + everybody's leases <= burst, always; so the sum of what all gateways can grant at once is one burst.
_BUCKET = """
local rate, burst, want, least = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local owed, held, elapsed, hint = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1000000
local all = redis.call('HGETALL', KEYS[1])
local level, at, others, mine, debts = nil, now, 0, 'g:' .. ARGV[1], 'o:' .. ARGV[1]
for i = 1, #all, 2 do
  local name, value = all[i], all[i + 1]
  if name == 'level' then level = tonumber(value)
  elseif name == 'at' then at = tonumber(value)
  elseif name == debts then
    local born, told = string.match(value, '^(%S+) (%S+)$')
    if born == ARGV[10] then owed = math.min(owed, math.max(0, tonumber(ARGV[11]) - tonumber(told))) end
  elseif string.sub(name, 1, 2) == 'g:' and name ~= mine then
    local lease, seen = string.match(value, '^(%S+) (%S+)$')
    if math.abs(now - tonumber(seen)) > FORGOTTEN then redis.call('HDEL', KEYS[1], name)
    else others = others + tonumber(lease) end
  end
end
if owed > 0 then redis.call('HSET', KEYS[1], debts, string.format('%s %.6f', ARGV[10], tonumber(ARGV[11]))) end
if level == nil then level = burst if hint >= 0 then level = math.min(burst, hint) end end
local passed = math.max(0, now - at)
if elapsed >= 0 then passed = math.min(passed, elapsed) end
level = math.min(level + passed * rate - owed, burst - others - math.max(0, held))
local taken = 0
if want < 0 then
  taken = want
elseif level >= least and level > 0 then
  taken = math.min(want, level)
end
level = level - taken
held = held + taken
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.6f', now))
if held > 0 then redis.call('HSET', KEYS[1], mine, string.format('%.6f %.6f', held, now))
else redis.call('HDEL', KEYS[1], mine) end
local full_s = math.min((burst - level) / math.max(rate, 0.000001), 86400)
redis.call('PEXPIRE', KEYS[1], math.ceil((full_s + KEPT) * 1000))
return {string.format('%.6f', taken), string.format('%.6f', level)}
"""

# Never below what is in use; never more than the others leave.
_SEATS = """
local limit, wanted, in_use = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1000000
local all = redis.call('HGETALL', KEYS[1])
local others, mine = 0, 'g:' .. ARGV[1]
for i = 1, #all, 2 do
  local name, value = all[i], all[i + 1]
  if name ~= mine then
    local seats, seen = string.match(value, '^(%S+) (%S+)$')
    if math.abs(now - tonumber(seen)) > FORGOTTEN then redis.call('HDEL', KEYS[1], name)
    else others = others + tonumber(seats) end
  end
end
local allotted = math.min(wanted, math.max(limit - others, in_use))
if allotted > 0 then redis.call('HSET', KEYS[1], mine, string.format('%d %.6f', allotted, now))
else redis.call('HDEL', KEYS[1], mine) end
redis.call('PEXPIRE', KEYS[1], KEPT * 1000)
return {allotted, others}
"""

# ARGV: who (gateway and boot), month, what is known to have been used by the others, what `who` has used in all, and
# how much of that it has told before. Every process has its own sum, so that an answer that was lost counts nothing
# twice; `floor` is what was used by whoever has no field here. A lost key is restored from what the gateways and the
# snapshot know: whoever comes first puts the others' use into `floor`, and each takes its own out when it comes back.
_MONTH = """
local rest, own, told = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local all = redis.call('HGETALL', KEYS[1])
local month, floor, others, mine, is_known = ARGV[2], 0, 0, 'g:' .. ARGV[1], false
for i = 1, #all, 2 do
  local name, value = all[i], all[i + 1]
  if name == 'month' then month = value
  elseif name == 'floor' then floor = tonumber(value)
  elseif name == mine then is_known = true
  else others = others + tonumber(value) end
end
if month > ARGV[2] then return {string.format('%.0f', rest + own), string.format('%.0f', own)} end
if month < ARGV[2] then
  redis.call('DEL', KEYS[1])
  floor, others = 0, 0
elseif not is_known then
  floor = math.max(0, floor - told)
end
floor = math.max(floor, rest - others)
redis.call('HSET', KEYS[1], 'month', ARGV[2], 'floor', string.format('%.0f', floor), mine, string.format('%.0f', own))
redis.call('EXPIRE', KEYS[1], 40 * 86400)
return {string.format('%.0f', floor + others + own), string.format('%.0f', own)}
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the digest by which a server knows it."""

    text: str
    digest: str

    def by_digest(self, key: str, *arguments: str | int | float) -> Command:
        """Run it where the server knows it already."""
        return ("EVALSHA", self.digest, 1, key, *arguments)

    def by_text(self, command: Command) -> Command:
        """The same run with the text, which the server then knows."""
        return ("EVAL", self.text, *command[2:])


def _script(text: str) -> Script:
    text = text.replace("FORGOTTEN", _FORGOTTEN).replace("KEPT", str(KEPT_S))
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


BUCKET, SEATS, MONTH = _script(_BUCKET), _script(_SEATS), _script(_MONTH)
BY_DIGEST = {script.digest: script for script in (BUCKET, SEATS, MONTH)}


def bucket(key: str, gateway: str, rate_per_s: float, burst: float, request: Request) -> Command:
    """One exchange with a shared bucket."""
    return BUCKET.by_digest(
        key,
        gateway,
        rate_per_s,
        burst,
        request.want,
        request.least,
        request.owed,
        request.held,
        request.elapsed_s,
        request.hint,
        f"{request.born:.6f}",
        request.owed_ever,
    )


def two_numbers(reply: Reply) -> tuple[float, float]:
    """What every script answers.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(reply, list) and len(reply) == 2:  # two, as the name says
        first, second = float(reply[0]), float(reply[1])
        if isfinite(first) and isfinite(second):
            return first, second
        raise ValueError("an answer that is no number")
    raise ValueError(f"unexpected answer of type {type(reply).__name__}")
