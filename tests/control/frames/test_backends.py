from control.frames.backends import backend_frames
from control.frames.histories import Histories
from gateway.core.vocabulary import BreakerState
from tests.fakes.published import a_snapshot
from tests.fakes.reports import a_gauge, a_report


def test_the_account_that_binds_on_the_busiest_gateway_is_named() -> None:
    histories = Histories()
    histories.add([a_report("g1", backends=(a_gauge(prefill_ratio=0.2, binding="prefill"),))], 100.0)
    histories.add([a_report("g2", backends=(a_gauge(sequences_ratio=1.0, binding="sequences"),))], 100.0)
    made = backend_frames(a_snapshot(), histories.live(100.0, 3.0), {}, 100.0)[0]
    assert (made.binding, made.prefill_ratio, made.sequences_ratio) == ("sequences", 0.2, 1.0)


def test_a_backend_that_no_gateway_reports_is_closed_and_idle() -> None:
    made = backend_frames(a_snapshot(), {}, {}, 100.0)[0]
    assert (made.breaker.state, made.in_flight, made.limit) == (BreakerState.CLOSED.value, 0, 0)
