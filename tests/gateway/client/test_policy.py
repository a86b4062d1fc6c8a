"""The policy's values: checked early, and the back-off they make."""

import pytest

from gateway.client.policy import RetryPolicy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_retries", -1),
        ("max_retries", 101),
        ("base_s", 0),
        ("cap_s", -1),
        ("min_wait_s", 0),
        ("max_named_wait_s", float("inf")),
        ("deadline_s", 0),
        ("deadline_s", float("nan")),
    ],
)
def test_a_value_out_of_range_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        RetryPolicy(**{name: value})


def test_the_backoff_doubles_up_to_its_cap_and_never_overflows():
    policy = RetryPolicy(base_s=0.5, cap_s=8)
    assert [policy.backoff_s(n) for n in (0, 1, 2, 3, 4, 5, 10_000)] == [0.5, 1, 2, 4, 8, 8, 8]
