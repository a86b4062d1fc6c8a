"""What one gateway holds of a shared bound: arithmetic, on a clock that the test moves."""

import pytest

from gateway.quotas.leases import FRESH_S, IDLE_S, Lease, Month, Seats, Verdict

RATE, BURST = 2.0, 10.0


def a_lease(now: float = 0.0) -> Lease:
    return Lease(RATE, BURST, 1.0, now)


def exchange(lease: Lease, now: float, pending: float = 0.0, level: float = BURST) -> float:
    """Ask a shared bucket that holds `level`; what is left in it."""
    request = lease.request(now, pending)
    assert request is not None
    useful = (
        request.want if request.want < 0 else (min(request.want, level) if level >= request.least else 0.0)
    )
    lease.exchanged(request, useful, level - useful - request.owed, now)
    return level - useful - request.owed


def test_an_empty_lease_that_never_asked_must_ask():
    assert a_lease().verdict(1, 0.0, 1) is Verdict.ASK


def test_after_an_exchange_memory_decides():
    lease = a_lease()
    lease.verdict(1, 0.0, 1)
    exchange(lease, 0.0, pending=1)
    assert lease.verdict(1, 0.0, 1) is Verdict.HAS
    lease.take(1)
    assert lease.held == 1.0  # two asks were leased


def test_a_fresh_answer_that_leaves_too_little_refuses_without_asking_again():
    lease = a_lease()
    lease.verdict(4, 0.0, 1)
    exchange(lease, 0.0, pending=4, level=1.0)
    assert lease.held == 0.0  # a part that nobody can use is not taken
    assert lease.verdict(4, 0.1, 1) is Verdict.SHORT
    assert lease.retry_at(4, 0.1, 1) == pytest.approx(0.1 + (4 - 1.2) / RATE)
    assert lease.verdict(4, FRESH_S + 0.01, 1) is Verdict.ASK


def test_what_is_larger_than_the_burst_never_fits():
    lease = a_lease()
    assert lease.verdict(BURST + 1, 0.0, 1) is Verdict.SHORT
    assert lease.retry_at(BURST + 1, 0.0, 1) is None


def test_an_idle_lease_is_given_back_whole():
    lease = a_lease()
    lease.verdict(1, 0.0, 1)
    level = exchange(lease, 0.0, pending=1)
    assert exchange(lease, IDLE_S + 0.1, level=level) == BURST
    assert lease.held == 0.0


def test_what_is_being_given_back_cannot_be_taken_meanwhile():
    lease = a_lease()
    lease.verdict(1, 0.0, 1)
    exchange(lease, 0.0, pending=1)
    request = lease.request(IDLE_S + 0.1, 0.0)
    assert request is not None
    assert request.want == -2.0
    assert lease.verdict(1, IDLE_S + 0.1, 1) is not Verdict.HAS


def test_a_debt_is_paid_with_the_next_exchange():
    lease = a_lease()
    lease.give(-5.0, 0.0)
    assert exchange(lease, 0.0) == BURST - 5.0 - 2.0
    assert lease.held == 2.0


def test_a_surplus_after_a_settlement_goes_back_to_the_others():
    lease = a_lease()
    lease.verdict(1, 0.0, 1)
    level = exchange(lease, 0.0, pending=1)
    lease.give(5.0, 0.0)
    level = exchange(lease, 0.1, level=level)
    assert (lease.held, level) == (2.0, BURST - 2.0 + 5.0)


def test_what_is_held_is_told_as_a_heartbeat():
    lease = a_lease()
    lease.verdict(1, 0.0, 1)
    exchange(lease, 0.0, pending=1)
    lease.verdict(1, 0.9, 1)
    assert lease.request(0.9, 0.0) is None
    lease.verdict(1, 1.1, 1)
    request = lease.request(1.1, 0.0)
    assert request is not None
    assert request.want == 0.0


def test_alone_it_lives_on_a_share_of_what_was_left_and_of_the_rate():
    lease = a_lease()
    lease.verdict(1, 0.0, 2)
    level = exchange(lease, 0.0, pending=1)
    lease.go_alone(0.0, gateways=2)
    lease.go_alone(0.0, gateways=2)  # again: changes nothing
    assert lease.held == 2.0 + level / 2
    while lease.verdict(1, 0.0, 2) is Verdict.HAS:
        lease.take(1)
    assert lease.retry_at(1, 0.0, 2) == pytest.approx(1.0)  # half of the rate
    assert lease.verdict(1, 0.99, 2) is Verdict.SHORT
    assert lease.verdict(1, 1.01, 2) is Verdict.HAS


def test_a_tenant_that_was_idle_when_valkey_went_has_its_share_at_once():
    lease = a_lease()
    lease.go_alone(100.0, gateways=2)
    assert [lease.verdict(n, 100.0, 2) for n in (5, 6)] == [Verdict.HAS, Verdict.SHORT]


def test_what_was_granted_alone_is_owed_afterwards():
    lease = a_lease()
    lease.go_alone(0.0, gateways=2)
    lease.take(5)
    lease.verdict(1, 1.0, 2)  # one more accrued
    assert lease.owed == 6.0
    level = exchange(lease, 1.0)
    assert (lease.owed, lease.is_alone) == (0.0, False)
    assert level + lease.held == pytest.approx(BURST - 5.0)  # what was taken, and nothing else, is gone


def test_alone_a_large_ask_fits_once_it_has_accrued():
    lease = a_lease()
    lease.go_alone(0.0, gateways=10)
    assert lease.verdict(8, 0.0, 10) is Verdict.SHORT
    assert lease.verdict(8, 40.0, 10) is Verdict.HAS


def test_a_smaller_burst_cuts_what_is_held():
    lease = a_lease()
    lease.give(9.0, 0.0)
    lease.configure(1.0, 4.0, 0.0)
    assert (lease.held, lease.shared.burst) == (4.0, 4.0)
    assert "held=4.0" in repr(lease)


# -- seats -------------------------------------------------------------------------------------------------------------


def some_seats(limit: int = 4) -> Seats:
    return Seats(limit)


def test_seats_are_asked_for_then_taken_from_memory():
    seats = some_seats()
    assert seats.verdict(0.0, 1) is Verdict.ASK
    assert seats.request(0.0, pending=2) == 2
    seats.exchanged(2, 0, 0.0)
    for _ in range(2):
        assert seats.verdict(0.0, 1) is Verdict.HAS
        seats.take()
    assert seats.verdict(0.2, 1) is Verdict.ASK


def test_all_seats_taken_refuses_without_asking_again():
    seats = some_seats()
    seats.exchanged(2, 2, 0.0)
    seats.in_use = 2
    assert seats.verdict(0.01, 1) is Verdict.SHORT
    assert seats.verdict(0.2, 1) is Verdict.ASK  # somebody may have left


def test_a_freed_seat_is_kept_a_moment_then_given_back():
    seats = some_seats()
    seats.exchanged(1, 0, 0.0)
    seats.take()
    seats.release(10.0)
    seats.release(10.0)
    assert seats.in_use == 0
    seats.exchanged(1, 0, 10.0)
    assert seats.request(10.5, 0) is None
    assert seats.request(10.9 + IDLE_S, 0) == 0
    assert seats.allotted == 0


def test_requests_that_come_and_go_ask_nothing_once_their_peak_is_known():
    seats = some_seats(100)
    seats.exchanged(32, 0, 0.0)
    for _ in range(32):
        seats.take()
    for _ in range(32):
        seats.release(0.1)
    assert seats.request(0.1, 0) == 40  # the peak and a quarter
    seats.exchanged(40, 0, 0.1)
    for at in (0.2, 0.5, 0.9):
        assert seats.request(at, 0) is None
        assert seats.verdict(at, 1) is Verdict.HAS


def test_what_is_held_in_reserve_leaves_the_others_half_of_what_nobody_uses():
    seats = some_seats(100)
    seats.exchanged(80, 10, 0.0)
    for _ in range(80):
        seats.take()
    for _ in range(70):
        seats.release(0.1)
    assert seats.request(0.1, 0) == 10 + (100 - 10 - 10) // 2


def test_a_peak_is_forgotten_with_the_second_period_after_it():
    seats = some_seats(100)
    seats.exchanged(40, 0, 0.0)
    for _ in range(40):
        seats.take()
    for _ in range(40):
        seats.release(0.1)
    seats.request(0.1, 0)
    for at in (1.2, 2.4):
        seats.take()
        seats.release(at)
        wanted = seats.request(at, 0)
        seats.exchanged(wanted if wanted is not None else seats.allotted, 0, at)
    assert seats.allotted == 1


def test_allotted_seats_are_told_as_a_heartbeat():
    seats = some_seats()
    seats.exchanged(1, 0, 0.0)
    seats.take()
    assert [seats.request(0.5, 0), seats.request(1.0, 0)] == [None, 1]


@pytest.mark.parametrize(("limit", "gateways", "share"), [(6, 3, 2), (2, 3, 1), (7, 3, 2)])
def test_alone_a_gateway_has_a_share_of_the_seats_and_at_least_one(limit, gateways, share):
    seats = some_seats(limit)
    seats.go_alone()
    taken = 0
    while seats.verdict(0.0, gateways) is Verdict.HAS:
        seats.take()
        taken += 1
    assert taken == share


def test_just_alone_it_takes_none_that_the_others_may_still_use():
    seats = some_seats(4)
    seats.exchanged(0, 4, 0.0)
    seats.go_alone()
    assert seats.verdict(1.0, 2) is Verdict.SHORT
    assert seats.verdict(6.0, 2) is Verdict.HAS
    assert "alone=True" in repr(seats)


# -- months ------------------------------------------------------------------------------------------------------------


def test_a_month_counts_what_others_used_and_what_was_not_told_yet():
    month = Month(1000, "2026-11", 100)
    month.quota.reserved = 50
    month.settle(50, 30)
    assert (month.quota.remaining, month.known_elsewhere) == (870, 100)
    assert month.must_be_told(0.0)
    month.settle(0, 5)
    month.exchanged(30, 400, 0.0)
    assert month.quota.remaining == 1000 - 405
    assert not month.must_be_told(0.5)
    assert month.must_be_told(1.5)
    month.exchanged(35, 405, 1.5)
    assert not month.must_be_told(3.0)


def test_a_new_month_begins_with_nothing_used():
    month = Month(1000, "2026-11", 900)
    month.settle(0, 50)
    month.enter("2026-12", 0)
    assert (month.quota.remaining, month.used_here, month.sent) == (1000, 0, 0)


def test_a_fresher_count_of_the_same_month_never_lowers_what_is_known():
    month = Month(1000, "2026-11", 100)
    month.enter("2026-11", 300)
    month.enter("2026-11", 200)
    assert month.quota.remaining == 700
