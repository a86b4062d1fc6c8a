"""Whole seats."""

import pytest

from gateway.core.seats import Seats, whole_share


@pytest.mark.parametrize(
    ("size", "share", "part"), [(10, 1.0, 10), (10, 0.35, 3), (3, 1 / 3, 1), (3, 0.1, 1), (10, 0.0, 1)]
)
def test_a_share_of_a_size_is_whole_and_at_least_one(size, share, part):
    assert whole_share(size, share) == part


def test_seats_know_who_holds_them_and_forget_who_does_not():
    seats = Seats()
    seats.take(0, "ada")
    seats.take(1, "ada")
    seats.take(1, "bob")
    assert (seats.taken, seats.by_tier, seats.by_tenant) == (3, {0: 1, 1: 2}, {"ada": 2, "bob": 1})
    seats.give_back(1, "bob")
    seats.give_back(0, "ada")
    assert (seats.taken, seats.by_tier, seats.by_tenant) == (1, {1: 1}, {"ada": 1})
