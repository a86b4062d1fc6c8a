from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.models import UsageLedger, UsageMark
from control.services import usage
from gateway.contract.report import UsageDelta

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 30, 12, 59, 59, tzinfo=UTC).timestamp()


def delta(seq, **changes):
    values = {
        "gateway": "g1", "boot": "a", "seq": seq, "at": AT, "tenant": "acme", "pool": "chat", "requests": 1,
        "prompt_tokens": 10, "output_tokens": 5,
    }  # fmt: skip
    return UsageDelta(**{**values, **changes})


def total():
    return sum(row.prompt_tokens for row in UsageLedger.objects.all())


def test_deltas_add_up_in_the_hour_that_they_belong_to():
    assert usage.record([delta(1), delta(2, at=AT + 1), delta(3)]) == 3
    rows = {
        row.hour.hour: (row.requests, row.prompt_tokens, row.output_tokens)
        for row in UsageLedger.objects.all()
    }
    assert rows == {12: (2, 20, 10), 13: (1, 10, 5)}


def test_a_delta_that_comes_again_is_counted_once():
    usage.record([delta(1), delta(2)])
    assert usage.record([delta(1), delta(2), delta(3)]) == 1
    assert total() == 30


def test_another_boot_or_gateway_counts_for_itself():
    usage.record([delta(1), delta(1, boot="b"), delta(1, gateway="g2")])
    assert total() == 30
    assert UsageMark.objects.count() == 3


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.integers(1, 12), max_size=8), max_size=6))
def test_however_a_stream_is_cut_and_repeated_each_delta_counts_once(db, batches):
    UsageLedger.objects.all().delete()
    UsageMark.objects.all().delete()
    high = 0
    for batch in batches:  # each batch is a run of the stream from where reading began again
        usage.record([delta(seq) for seq in range(1, max(batch, default=0) + 1)])
        high = max(high, *batch, 0) if batch else high
    assert total() == 10 * high
