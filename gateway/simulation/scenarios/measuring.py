"""How outcomes become the values of targets: one value per seed, or one of all seeds together."""

from collections.abc import Callable, Sequence
from statistics import mean

from gateway.simulation.measures import quantile, recovery_s
from gateway.simulation.scenarios.cases import Case, Outcome

Seeds = Sequence[int]
UNLOADED_RUNS = 8  # short runs with few requests: their tail is noisy
# seconds after the window's start at which the disturbance ends
RECOVERY_FROM = {"slow-down": 40, "burst": 50}
CALM_S = 20  # from the window's start until the disturbance


class Book:
    """The outcomes of a set of cases."""

    def __init__(self, outcomes: dict[Case, Outcome]) -> None:
        self._outcomes = outcomes

    def __getitem__(self, case: Case) -> Outcome:
        return self._outcomes[case]

    def each(self, case: Case, seeds: Seeds) -> list[Outcome]:
        """The outcomes of one case with each seed."""
        return [self._outcomes[case.seeded(seed)] for seed in seeds]


Measure = Callable[[Book, Case, Seeds], list[float]]


def unloaded_cases(play: str, seeds: Seeds) -> list[Case]:
    """The runs that tell the TTFT of P0 while there is nearly nothing to do."""
    return [Case("gpu", play, seed=seed + 1000 * run) for seed in seeds for run in range(UNLOADED_RUNS)]


def unloaded_p99_s(book: Book, play: str, seeds: Seeds) -> float:
    """P0's 99th percentile of TTFT in a run without load."""
    return mean(book[case].ttft_p99_s for case in unloaded_cases(play, seeds))


def ratio(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Goodput / what is achievable."""
    return [result.ratio for result in book.each(case, seeds)]


def in_objective(tier: int) -> Measure:
    """Per cent of a tier's requests inside their objectives."""

    def measure(book: Book, case: Case, seeds: Seeds) -> list[float]:
        return [100.0 * result.in_objective[tier] for result in book.each(case, seeds)]

    return measure


def answered(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Per cent of P0's requests that were answered."""
    return [100.0 * result.answered[0] for result in book.each(case, seeds)]


def tail(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """P0's p99 of TTFT / the same without load."""
    base = unloaded_p99_s(book, "unloaded", seeds)
    return [result.ttft_p99_s / base for result in book.each(case, seeds)]


def preemptions(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Preemptions per run."""
    return [float(result.preemptions) for result in book.each(case, seeds)]


def preemptions_per_1000(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Preemptions per 1,000 answers."""
    return [result.preemptions_per_1000 for result in book.each(case, seeds)]


def preemptions_against(other: Case) -> Measure:
    """Preemptions of all seeds / those of another guard, in per cent."""

    def measure(book: Book, case: Case, seeds: Seeds) -> list[float]:
        base = sum(result.preemptions for result in book.each(other, seeds))
        return [100.0 * sum(result.preemptions for result in book.each(case, seeds)) / max(1, base)]

    return measure


def goodput_against(other: Case) -> Measure:
    """Goodput / that of another guard with the same seed."""

    def measure(book: Book, case: Case, seeds: Seeds) -> list[float]:
        pairs = zip(book.each(case, seeds), book.each(other, seeds), strict=True)
        return [mine.goodput / max(1e-9, theirs.goodput) for mine, theirs in pairs]

    return measure


def loss_against(other: Case) -> Measure:
    """Goodput lost against another case, all seeds together, in per cent; negative: won."""

    def measure(book: Book, case: Case, seeds: Seeds) -> list[float]:
        base = sum(result.goodput for result in book.each(other, seeds))
        return [100.0 * (1.0 - sum(result.goodput for result in book.each(case, seeds)) / base)]

    return measure


def change_against(other: Case) -> Measure:
    """Change of goodput against another case in either direction, in per cent."""
    lost = loss_against(other)
    return lambda book, case, seeds: [abs(lost(book, case, seeds)[0])]


def tail_against(other: Case) -> Measure:
    """P0's p99 of TTFT / that of another case, means over the seeds."""

    def measure(book: Book, case: Case, seeds: Seeds) -> list[float]:
        base = mean(result.ttft_p99_s for result in book.each(other, seeds))
        return [mean(result.ttft_p99_s for result in book.each(case, seeds)) / base]

    return measure


def useless(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Per cent of the engines' work that was for nothing."""
    return [100.0 * result.useless for result in book.each(case, seeds)]


def attempts(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Tries per request."""
    return [result.attempts for result in book.each(case, seeds)]


def jain(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Jain's index over P1's tenants."""
    return [result.jain for result in book.each(case, seeds)]


def reaction_ms(part: float) -> Measure:
    """A quantile of the reactions to all onsets, in milliseconds."""

    def measure(book: Book, case: Case, seeds: Seeds) -> list[float]:
        found = sorted(value for result in book.each(case, seeds) for value in result.reactions)
        return [1000.0 * quantile(found, part)]

    return measure


def false_alarms(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Per cent of calm time in which the window was small."""
    return [100.0 * result.false_alarms for result in book.each(case, seeds)]


def recovery(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Seconds after the disturbance until goodput is back, on the mean of the seeds."""
    results = book.each(case, seeds)
    seconds = zip(*(result.series for result in results), strict=True)
    series = [mean(values) for values in seconds]
    calm = mean(series[:CALM_S])
    return [float(recovery_s(series[RECOVERY_FROM[case.play] :], calm))]


def refusals(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """Refusals per 1,000 requests of P0."""
    return [1000.0 * result.refusals_of_first for result in book.each(case, seeds)]


def engine_waiting(book: Book, case: Case, seeds: Seeds) -> list[float]:
    """The most that ever waited inside an engine."""
    return [float(result.engine_waiting) for result in book.each(case, seeds)]
