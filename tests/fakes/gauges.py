"""What a gate and a tally show after one served request: for whatever renders them."""

from gateway.core.gauges import BackendGauge, GateView, QueueGauge
from gateway.core.vocabulary import BreakerState
from gateway.tally import Exchange, Tally

VIEW = GateView(
    queues=(
        QueueGauge(
            pool="chat", tier=1, waiting=3, oldest_wait_s=0.5, pressure=0.25, waiting_by_tenant=(("acme", 3),)
        ),
    ),
    backends=(
        BackendGauge(
            backend="b1",
            pool="chat",
            limit=8.5,
            reserved_seats=1,
            in_flight=4,
            in_flight_by_tier=(1, 3, 0),
            in_flight_by_tenant=(("acme", 4),),
            kv_tokens=100,
            prefill_tokens=20,
            prefill_ratio=0.1,
            kv_use_ratio=None,
            sequences_ratio=0.5,
            binding=None,
            slow=1.5,
            tpot_s=0.02,
            breaker=BreakerState.HALF_OPEN,
            breaker_until=None,
            failures=2,
            successes=9,
            demand_cost=1000.0,
        ),
    ),
    tickets=7,
    ledger_imbalance=0,
    draining=False,
)


def an_exchange(**facts) -> Exchange:
    return Exchange(at=1.0, request_id="r", pool="chat", tier=1, tenant=facts.pop("tenant", "acme"), **facts)


def a_served_tally() -> Tally:
    tally = Tally()
    exchange = an_exchange(
        wait_s=0.02, ttft_s=0.2, tpot_s=0.01, prompt_tokens=10, output_tokens=5, is_retry=True
    )
    tally.arrived(exchange)
    tally.dispatched(exchange)
    tally.first_token(exchange)
    exchange.outcome, exchange.status = "completed", 200
    tally.ended(exchange)
    return tally
