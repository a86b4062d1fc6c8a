"""The Lua scripts themselves, run on real servers: what they never do, whatever is asked of them."""

import random
import time
from collections.abc import Iterator

import pytest

from gateway.quotas import scripts
from gateway.quotas.leases import Lease, Request, Seats, Verdict
from tests.fakes.valkey import RealValkey, running_valkey, servers

KEY = "sluicegate:quota:acme:requests:chat"
RATE, BURST = 5.0, 20.0


@pytest.fixture(params=sorted(servers()))
def valkey(request) -> Iterator[RealValkey]:
    with running_valkey(servers()[request.param]) as server:
        yield server


class Shared:
    """A server on which scripts are run one after the other."""

    def __init__(self, server: RealValkey) -> None:
        self.client = server.client()

    def run(self, command) -> tuple[float, float]:
        script = scripts.BY_DIGEST[command[1]]
        return scripts.two_numbers(self.client.execute_command(*script.by_text(command)))

    def exchange(self, gateway: str, lease: Lease, pending: float = 0.0) -> float:
        """What is left in the bucket afterwards."""
        request = lease.request(time.monotonic(), pending)
        if request is None:
            return float(self.client.hget(KEY, "level") or BURST)
        return self.send(gateway, lease, request)

    def send(self, gateway: str, lease: Lease, request: Request) -> float:
        taken, level = self.run(scripts.bucket(KEY, gateway, RATE, BURST, request))
        lease.exchanged(request, taken, level, time.monotonic())
        return level


@pytest.fixture
def shared(valkey) -> Iterator[Shared]:
    shared = Shared(valkey)
    yield shared
    shared.client.close()


@pytest.mark.parametrize("seed", range(5))
def test_leases_and_bucket_together_never_hold_more_than_one_burst(shared, seed):
    dice = random.Random(seed)  # noqa: S311  # repeatable
    leases = {f"g{n}": Lease(RATE, BURST, 1.0, time.monotonic()) for n in range(3)}
    for _ in range(150):
        name = dice.choice(list(leases))
        lease = leases[name]
        amount = dice.choice((1.0, 1.0, 3.0, 12.0))
        match dice.randrange(5):
            case 0 | 1:
                if lease.verdict(amount, time.monotonic(), 3) is Verdict.HAS:
                    lease.take(amount)
                level = shared.exchange(name, lease, pending=amount)
            case 2:
                lease.take(min(lease.held, amount))
                level = shared.exchange(name, lease)
            case 3:
                lease.rest()
                level = shared.exchange(name, lease)
            case _:
                lease.give(-amount, time.monotonic())  # used beyond what was reserved
                level = shared.exchange(name, lease)
        assert max(0.0, level) + sum(max(0.0, one.held) for one in leases.values()) <= BURST + 0.001


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_server_clock_that_jumps_an_hour_refills_nothing(shared, jump_s):
    lease = Lease(RATE, BURST, 1.0, time.monotonic())
    lease.verdict(20.0, time.monotonic(), 1)
    assert shared.exchange("g1", lease, pending=20.0) == pytest.approx(0.0, abs=0.01)
    lease.take(20.0)
    at = float(shared.client.hget(KEY, "at"))
    shared.client.hset(KEY, "at", f"{at - jump_s:.6f}")  # as if the clock had jumped since
    level = shared.exchange("g1", lease, pending=1.0)
    assert level + lease.held < 5.0  # what a second refills, not what an hour does


def test_a_bucket_is_forgotten_only_when_it_would_be_full_anyway(shared):
    lease = Lease(RATE, BURST, 1.0, time.monotonic())
    lease.verdict(20.0, time.monotonic(), 1)
    shared.exchange("g1", lease, pending=20.0)
    lives_s = shared.client.pttl(KEY) / 1000
    assert BURST / RATE < lives_s <= BURST / RATE + scripts.KEPT_S + 1


def test_what_a_silent_gateway_held_is_nobodys_after_a_while(shared):
    shared.client.hset(
        KEY, mapping={"level": "0", "at": f"{time.time():.6f}", "g:dead": f"15.0 {time.time() - 6:.6f}"}
    )
    lease = Lease(RATE, BURST, 1.0, time.monotonic())
    lease.verdict(1.0, time.monotonic(), 1)
    shared.exchange("g1", lease, pending=1.0)
    assert shared.client.hget(KEY, "g:dead") is None


def test_seats_in_use_are_never_taken_away_and_never_exceed_the_limit_otherwise(shared):
    one, two = Seats(4), Seats(4)

    def share(gateway: str, seats: Seats, pending: int) -> None:
        wanted = seats.request(time.monotonic(), pending)
        assert wanted is not None
        allotted, others = shared.run(
            scripts.SEATS.by_digest("seats", gateway, seats.limit, wanted, seats.in_use)
        )
        seats.exchanged(int(allotted), int(others), time.monotonic())

    share("g1", one, 3)
    share("g2", two, 3)
    assert (one.allotted, two.allotted, two.free) == (3, 1, 0)
    for _ in range(3):
        one.take()
    one.limit = two.limit = 2  # lowered while they run
    share("g1", one, 1)
    share("g2", two, 1)
    assert (one.allotted, two.allotted) == (3, 0)


def test_a_month_of_an_earlier_name_changes_nothing(shared):
    """A gateway whose clock is behind at the turn of the month."""
    assert shared.run(scripts.MONTH.by_digest("month", "g1:b", "2026-12", 100, 50, 0)) == (150, 50)
    assert shared.run(scripts.MONTH.by_digest("month", "g2:b", "2026-11", 900, 10, 0)) == (910, 10)
    assert shared.run(scripts.MONTH.by_digest("month", "g2:b", "2026-12", 0, 10, 0)) == (160, 10)
    assert shared.run(scripts.MONTH.by_digest("month", "g2:b", "2026-12", 0, 10, 10)) == (
        160,
        10,
    )  # told twice


@pytest.mark.parametrize("order", [("g1", "g2"), ("g2", "g1")])
def test_a_lost_month_is_restored_whoever_comes_first(shared, order):
    """Both used 250 and 100 more; only the second had heard of the first."""
    known = {"g1": 0, "g2": 250}
    totals = [
        shared.run(scripts.MONTH.by_digest("m", name, "2026-12", known[name], 350, 250))[0] for name in order
    ]
    assert totals[1] == 350 + 350


@pytest.mark.parametrize("answer", [None, b"OK", [1], [1, 2, 3]])
def test_an_unexpected_answer_is_an_error(answer):
    with pytest.raises(ValueError, match="unexpected"):
        scripts.two_numbers(answer)


def test_what_was_granted_alone_is_debited_once_however_often_the_answer_is_lost(shared):
    lease = Lease(RATE, BURST, 1.0, time.monotonic())
    lease.go_alone(time.monotonic(), 1)
    lease.take(5.0)
    for _ in range(4):  # carried out, but the connection breaks before the answer comes
        request = lease.request(time.monotonic(), 0.0)
        shared.run(scripts.bucket(KEY, "g1", RATE, BURST, request))
        lease.go_alone(time.monotonic(), 1)
    level = shared.exchange("g1", lease)
    assert -0.001 <= level <= 5.0
    shared.exchange("g1", lease)  # what is held beyond need goes back
    assert shared.exchange("g2", Lease(RATE, BURST, 1.0, time.monotonic()), pending=1.0) > 5.0


def test_a_new_process_with_an_old_name_is_debited_anew(shared):
    for _ in range(2):
        lease = Lease(RATE, BURST, 1.0, time.monotonic())
        lease.go_alone(time.monotonic(), 1)
        lease.take(12.0)
        level = shared.exchange("g1", lease)
        lease.rest()
        level = shared.exchange("g1", lease)
    assert level < 0  # twice 12 of 20
