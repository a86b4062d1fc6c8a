from io import StringIO

import pytest
from django.core.management import CommandError, call_command

pytestmark = [pytest.mark.django_db, pytest.mark.loop]


@pytest.mark.usefixtures("valkey")
def test_the_loop_says_each_change_of_outcome_and_ends_after_its_ticks() -> None:
    out = StringIO()
    call_command("control_loop", "--ticks=2", "--period=0.2", stdout=out)
    assert out.getvalue().startswith("waiting (epoch 1, seq 0, took")
    assert out.getvalue().count("\n") == 1


def test_a_period_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match=r"expected \.2 to 10 seconds"):
        call_command("control_loop", "--period=0")
