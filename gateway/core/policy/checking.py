"""What is wrong with a policy: every field that is negative, not finite, impossible or in contradiction, by its name.

A field is named by the words of the policy: `pools[chat].limit.min_limit`. A *warning* is a value that does no harm but
can't do what it is there for, with the arithmetic; anything else makes the whole policy unusable.
"""

from collections.abc import Iterable, Iterator
from math import floor, inf, isfinite

from gateway.core.policy.values import (
    BackendPolicy,
    BreakerPolicy,
    GatePolicy,
    LimitPolicy,
    PoolPolicy,
    Problem,
    QueuePolicy,
    TierPolicy,
    WatermarkPolicy,
)
from gateway.core.vocabulary import LimitAlgorithm

MAX_RETRY_AFTER_S = 60
MAX_LIMIT = 100_000
_TOLERANCE = 1e-9  # floors and caps are decimal fractions: .1 + .2 + .7 is not 1 in binary

_Row = tuple[str, float | None, float, float]


def check(policy: GatePolicy) -> tuple[Problem, ...]:
    """Everything that is wrong with `policy`, in its order. Empty, or warnings only: good."""
    return (
        *_within("", (("gateways", policy.gateways, 1, inf),)),
        *_tiers(policy.tiers),
        *_pools(policy.pools),
        *_backends(policy),
    )


def _within(place: str, rows: Iterable[_Row]) -> Iterator[Problem]:
    """One problem per value that is not a finite number in low..high. None means "not set" and is good."""
    for name, value, low, high in rows:
        if value is None:
            continue
        if not isfinite(value):
            yield Problem(place + name, f"must be a finite number, not {value}")
        elif not low <= value <= high:
            bounds = f"at least {low:g}" if high == inf else f"{low:g}..{high:g}"
            yield Problem(place + name, f"must be {bounds}, not {value:g}")


def _positive(place: str, rows: Iterable[tuple[str, float | None]]) -> Iterator[Problem]:
    for name, value in rows:
        if value is not None and not 0.0 < value < inf:
            yield Problem(place + name, f"must be a finite number above 0, not {value}")


def _names(kind: str, names: Iterable[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for place, name in enumerate(names):
        if not name:
            yield Problem(f"{kind}[{place}].name", "is empty")
        elif name in seen:
            yield Problem(f"{kind}[{name}].name", "is used twice")
        seen.add(name)


def _tiers(tiers: tuple[TierPolicy, ...]) -> Iterator[Problem]:
    if not tiers:
        yield Problem("tiers", "there must be at least one")
        return
    yield from _names("tiers", (tier.name for tier in tiers))
    ranks = [tier.rank for tier in tiers]
    if sorted(ranks) != list(range(len(tiers))):
        yield Problem("tiers", f"ranks must be 0..{len(tiers) - 1}, each once, not {ranks}")
    for tier in tiers:
        yield from _tier(f"tiers[{tier.name}].", tier)
    lower = [tier.floor for tier in tiers if tier.rank > 0 and isfinite(tier.floor)]
    if sum(lower) > 1.0 + _TOLERANCE:
        yield Problem("tiers", f"the floors sum to {sum(lower):g}, above 1")
    yield from _first_tier(tiers, sum(lower))


def _first_tier(tiers: tuple[TierPolicy, ...], floors: float) -> Iterator[Problem]:
    for tier in tiers:
        if tier.rank != 0 or not isfinite(tier.share_cap):
            continue
        if tier.share_cap + floors > 1.0 + _TOLERANCE:
            yield Problem(
                f"tiers[{tier.name}].share_cap",
                f"{tier.share_cap:g} and the floors below it, {floors:g}, sum to {tier.share_cap + floors:g}, above 1",
            )


def _tier(place: str, tier: TierPolicy) -> Iterator[Problem]:
    yield from _positive(
        place,
        (
            ("ttft_objective_s", tier.ttft_objective_s),
            ("tpot_objective_s", tier.tpot_objective_s),
            ("weight", tier.weight),
            ("share_cap", tier.share_cap),
            ("hold_back_prefill", tier.hold_back_prefill),
            ("hold_back_kv", tier.hold_back_kv),
            ("delay_budget_factor", tier.delay_budget_factor),
        ),
    )
    yield from _within(
        place,
        (
            ("rank", tier.rank, 0, inf),
            ("share_cap", tier.share_cap, -inf, 1),
            ("floor", tier.floor, 0, 1),
            ("hold_back_prefill", tier.hold_back_prefill, -inf, 1),
            ("hold_back_kv", tier.hold_back_kv, -inf, 1),
        ),
    )
    yield from _queue(f"{place}queue.", tier.queue, tier)


def _queue(place: str, queue: QueuePolicy, tier: TierPolicy) -> Iterator[Problem]:
    yield from _within(
        place,
        (
            ("max_size", queue.max_size, 0, inf),
            ("max_size_per_tenant", queue.max_size_per_tenant, 1, inf),
            ("retry_after_max_s", queue.retry_after_max_s, 1, MAX_RETRY_AFTER_S),
        ),
    )
    yield from _positive(place, (("timeout_s", queue.timeout_s), ("delay_budget_s", queue.delay_budget_s)))
    if queue.max_size_per_tenant is not None and queue.max_size_per_tenant > queue.max_size:
        yield Problem(
            f"{place}max_size_per_tenant",
            f"{queue.max_size_per_tenant} is above max_size, {queue.max_size}",
        )
    if queue.delay_budget_s is not None:
        if queue.delay_budget_s > queue.timeout_s:
            yield Problem(
                f"{place}delay_budget_s",
                f"{queue.delay_budget_s:g} s is above timeout_s, {queue.timeout_s:g} s: it can't be used up",
            )
    elif tier.delay_budget_factor * tier.ttft_objective_s > queue.timeout_s:
        budget = f"{tier.delay_budget_factor:g} x {tier.ttft_objective_s:g} s"
        yield Problem(
            f"{place}timeout_s",
            f"{queue.timeout_s:g} s is below the delay budget, {budget}: early drop can't happen before it",
            is_warning=True,
        )


def _pools(pools: tuple[PoolPolicy, ...]) -> Iterator[Problem]:
    yield from _names("pools", (pool.name for pool in pools))
    for pool in pools:
        place = f"pools[{pool.name}]."
        yield from _positive(place, (("output_cost", pool.output_cost),))
        yield from _within(
            place,
            (
                ("default_output_tokens", pool.default_output_tokens, 1, inf),
                ("max_output_tokens", pool.max_output_tokens, 1, inf),
            ),
        )
        yield from _limit(f"{place}limit.", pool.limit)
        yield from _breaker(f"{place}breaker.", pool.breaker)
        if pool.watermark is not None:
            yield from _watermark(f"{place}watermark.", pool.watermark)
            if pool.limit.algorithm is LimitAlgorithm.TOKEN_VALVE:
                yield Problem(
                    f"{place}watermark",
                    "the token valve keeps the engine's queue empty: the watermark will hardly ever act",
                    is_warning=True,
                )


def _limit(place: str, limit: LimitPolicy) -> Iterator[Problem]:
    yield from _within(
        place,
        (
            ("min_limit", limit.min_limit, 1, MAX_LIMIT),
            ("max_limit", limit.max_limit, 1, MAX_LIMIT),
            ("initial_limit", limit.initial_limit, 1, MAX_LIMIT),
            ("reserved_seats", limit.reserved_seats, 0, MAX_LIMIT),
            ("chunk_tokens", limit.chunk_tokens, 1, inf),
        ),
    )
    yield from _positive(place, (("kv_target", limit.kv_target),))
    yield from _within(place, (("kv_target", limit.kv_target, -inf, 1),))
    if limit.min_limit > limit.max_limit:
        yield Problem(f"{place}min_limit", f"{limit.min_limit} is above max_limit, {limit.max_limit}")
    if limit.initial_limit is not None and not limit.min_limit <= limit.initial_limit <= limit.max_limit:
        yield Problem(
            f"{place}initial_limit",
            f"{limit.initial_limit} is not within min_limit..max_limit, {limit.min_limit}..{limit.max_limit}",
        )
    if limit.reserved_seats is not None and limit.reserved_seats >= limit.max_limit:
        yield Problem(
            f"{place}reserved_seats",
            f"{limit.reserved_seats} of at most {limit.max_limit} seats leave none for the lower tiers",
        )


def _breaker(place: str, breaker: BreakerPolicy) -> Iterator[Problem]:
    yield from _positive(
        place,
        (
            ("window_s", breaker.window_s),
            ("failure_ratio", breaker.failure_ratio),
            ("open_s", breaker.open_s),
            ("probe_timeout_s", breaker.probe_timeout_s),
        ),
    )
    yield from _within(
        place,
        (
            ("min_requests", breaker.min_requests, 1, inf),
            ("failure_ratio", breaker.failure_ratio, -inf, 1),
            ("half_open_probes", breaker.half_open_probes, 1, inf),
            ("ramp_s", breaker.ramp_s, 0, inf),
        ),
    )


def _watermark(place: str, watermark: WatermarkPolicy) -> Iterator[Problem]:
    yield from _within(
        place,
        (
            ("safe", watermark.safe, 0, inf),
            ("maximum", watermark.maximum, 1, inf),
            ("jitter_s", watermark.jitter_s, 0, inf),
        ),
    )
    if watermark.safe > watermark.maximum:
        yield Problem(f"{place}safe", f"{watermark.safe} is above maximum, {watermark.maximum}")


def _backends(policy: GatePolicy) -> Iterator[Problem]:
    yield from _names("backends", (backend.name for backend in policy.backends))
    pools = {pool.name: pool for pool in policy.pools}
    for backend in policy.backends:
        place = f"backends[{backend.name}]."
        yield from _positive(place, (("weight", backend.weight),))
        yield from _within(
            place,
            (
                ("max_seqs", backend.max_seqs, 1, MAX_LIMIT),
                ("kv_capacity_tokens", backend.kv_capacity_tokens, 1, inf),
                ("context_tokens", backend.context_tokens, 1, inf),
            ),
        )
        pool = pools.get(backend.pool)
        if pool is None:
            yield Problem(f"{place}pool", f"there is no pool {backend.pool!r}")
            continue
        yield from _never_fires(place, backend, pool, policy.gateways)


def _never_fires(place: str, backend: BackendPolicy, pool: PoolPolicy, gateways: int) -> Iterator[Problem]:
    limit = pool.limit
    seats = limit.max_limit if backend.max_seqs is None else min(limit.max_limit, backend.max_seqs)
    if limit.reserved_seats is not None and seats <= limit.reserved_seats < limit.max_limit:
        yield Problem(
            f"{place}max_seqs",
            f"{seats} seats are all reserved (pools[{pool.name}].limit.reserved_seats is {limit.reserved_seats})",
        )
    if gateways > seats > 0:
        yield Problem(
            f"{place}max_seqs", f"{seats} seats for {gateways} gateways: some get none", is_warning=True
        )
    capacity, context = backend.kv_capacity_tokens, backend.context_tokens
    if capacity is None or context is None or limit.algorithm is not LimitAlgorithm.TOKEN_VALVE:
        return
    threshold = limit.kv_target * capacity
    if isfinite(threshold) and seats * context < threshold:
        yield Problem(
            f"{place}kv_capacity_tokens",
            f"the KV account can never bind: {seats} sequences x {context} tokens = {seats * context},"
            f" below kv_target {limit.kv_target:g} x {capacity} = {floor(threshold)}",
            is_warning=True,
        )
