"""What a run was worth: numbers of a record, over a window of its time. Nothing here judges them.

Goodput is the cost (output + prompt / output cost, in LLM tokens) of requests answered inside both objectives of their
tier, counted when they were decided. "In objective" is per request, whatever number of attempts it took; TTFT counts
from the arrival of the attempt that succeeded.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median

from gateway.simulation.profiles import Profile
from gateway.simulation.runner import Record
from gateway.simulation.traffic import Request

Window = tuple[float, float]
CARRY_S = 20  # how long work that was not served stays wanted


def decided(record: Record, window: Window, tier: int | None = None) -> Iterator[Request]:
    """Requests whose fate was decided inside the window."""
    start, end = window
    for request in record.requests:
        at = request.decided_at
        if at is not None and start <= at < end and (tier is None or request.tier == tier):
            yield request


def cost(profile: Profile, request: Request) -> float:
    """What a request is worth, in LLM tokens of output."""
    return request.output_tokens + request.prompt_tokens / profile.output_cost


def good(record: Record, window: Window, tier: int | None = None) -> Iterator[Request]:
    """Requests that were answered inside their objectives."""
    tiers = record.setup.profile.tiers
    return (
        request for request in decided(record, window, tier) if request.is_in_objective(tiers[request.tier])
    )


def goodput(record: Record, window: Window) -> float:
    """LLM tokens per second."""
    profile = record.setup.profile
    return sum(cost(profile, request) for request in good(record, window)) / (window[1] - window[0])


def goodput_per_second(record: Record, window: Window) -> list[float]:
    """Goodput of each second of the window."""
    profile = record.setup.profile
    series = [0.0] * round(window[1] - window[0])
    for request in good(record, window):
        series[_second(request.decided_at or 0.0, window, series)] += cost(profile, request)
    return series


def offered_per_second(record: Record, window: Window) -> list[float]:
    """What callers wanted in each second of the window, had all been served at once."""
    profile = record.setup.profile
    series = [0.0] * round(window[1] - window[0])
    for request in record.requests:
        if window[0] <= request.arrived_at < window[1]:
            series[_second(request.arrived_at, window, series)] += cost(profile, request)
    return series


def achievable(offered: Sequence[float], capacity: Sequence[float], carry_s: int = CARRY_S) -> float:
    """What the best could serve: per second no more than the capacity, and no more than what is wanted then.

    What could not be served stays wanted for `carry_s` seconds.
    """
    wanted: deque[list[float]] = deque()  # [second, amount], oldest first
    total = 0.0
    for second, (amount, left) in enumerate(zip(offered, capacity, strict=True)):
        wanted.append([second, amount])
        while wanted and wanted[0][0] < second - carry_s:
            wanted.popleft()
        room = left
        while wanted and room > 0:
            taken = min(room, wanted[0][1])
            wanted[0][1] -= taken
            room -= taken
            if wanted[0][1] <= 0:
                wanted.popleft()
        total += left - room
    return total


def in_objective(record: Record, window: Window, tier: int = 0) -> float:
    """Part of a tier's requests, decided in the window, that were answered inside their objectives; 0..1."""
    return _part(sum(1 for _ in good(record, window, tier)), sum(1 for _ in decided(record, window, tier)))


def answered(record: Record, window: Window, tier: int = 0) -> float:
    """Part of a tier's requests that were answered at all; 0..1."""
    requests = list(decided(record, window, tier))
    return _part(sum(request.is_answered for request in requests), len(requests))


def attempts_per_request(record: Record, window: Window) -> float:
    """How many tries a request took, whatever came of it."""
    requests = list(decided(record, window))
    return sum(request.attempts for request in requests) / max(1, len(requests))


def ttft(record: Record, window: Window, tier: int = 0) -> list[float]:
    """Times to first token of a tier's answered requests, sorted."""
    return sorted(request.ttft_s for request in decided(record, window, tier) if request.ttft_s is not None)


def quantile(ordered: Sequence[float], part: float) -> float:
    """The quantile of sorted values, by linear interpolation; 0 of nothing."""
    if not ordered:
        return 0.0
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def preemptions(record: Record, window: Window) -> int:
    """How often an engine threw a running sequence out."""
    inside = [totals.preemptions for totals in record.totals if window[0] <= totals.at_s <= window[1]]
    return inside[-1] - inside[0] if inside else 0


def finished(record: Record, window: Window) -> int:
    """How many sequences engines finished."""
    inside = [totals.finished for totals in record.totals if window[0] <= totals.at_s <= window[1]]
    return inside[-1] - inside[0] if inside else 0


def useless_work(record: Record, window: Window) -> float:
    """Part of the engines' work that was recomputed, abandoned or answered outside its objectives; 0..1."""
    inside = [totals for totals in record.totals if window[0] <= totals.at_s <= window[1]]
    output_cost = record.setup.profile.output_cost
    first, last = inside[0], inside[-1]
    recomputed = (last.recomputed_tokens - first.recomputed_tokens) / output_cost
    prompts = (last.prompt_tokens - first.prompt_tokens) / output_cost
    total = last.generated_tokens - first.generated_tokens + prompts
    wasted = sum(amount for at, amount in record.wasted if window[0] <= at < window[1])
    return _part(recomputed + wasted, total)


def jain(record: Record, window: Window, tier: int) -> float:
    """Jain's fairness index of what the tenants of a tier got: 1 is perfect, 1/n is one takes all."""
    profile = record.setup.profile
    got: dict[str, float] = {request.tenant: 0.0 for request in record.requests if request.tier == tier}
    for request in good(record, window, tier):
        got[request.tenant] += cost(profile, request)
    squares = sum(value * value for value in got.values())
    return sum(got.values()) ** 2 / (len(got) * squares) if squares else 0.0


def reactions(windows: Sequence[tuple[float, float]], onsets: Sequence[float]) -> list[float]:
    """Seconds from each onset until the window is below .9 x its median of the 2 s before; 2 s where it never was."""
    found = []
    for onset in onsets:
        before = [value for at, value in windows if onset - 2.0 <= at < onset]
        bound = 0.9 * median(before)
        after = (at - onset for at, value in windows if onset <= at < onset + 2.0 and value < bound)
        found.append(next(after, 2.0))
    return found


def false_alarms(windows: Sequence[tuple[float, float]], window: Window) -> float:
    """Part of calm time in which the window was below .7 x its median."""
    values = [value for at, value in windows if window[0] <= at < window[1]]
    bound = 0.7 * median(values)
    return _part(sum(value < bound for value in values), len(values))


def recovery_s(series: Sequence[float], calm: float, smoothing_s: int = 3) -> int:
    """Seconds until a series that begins at the end of a disturbance stays for `smoothing_s` at 80 % of `calm`."""
    for second in range(len(series) - smoothing_s + 1):
        if sum(series[second : second + smoothing_s]) >= 0.8 * calm * smoothing_s:
            return second
    return len(series)


def _second(at: float, window: Window, series: Sequence[float]) -> int:
    return min(len(series) - 1, int(at - window[0]))


def _part(value: float, whole: float) -> float:
    return value / whole if whole else 0.0
