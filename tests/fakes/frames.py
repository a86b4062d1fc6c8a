"""Frames that act out one incident, and a writer that publishes them as the slow loop does.

    python -m tests.fakes.frames [--url redis://...] [--start 0] [--speed 1]

Pool `chat-70b` on four backends: calm, at 300 s ten times the load from one tenant, at 458 s backend b4 is lost, at
700 s it comes back, at 780 s the load is over; then again. Pool `embed-large` stays calm and tells no KV gauge.
Same second, same numbers.
"""

# ruff: noqa: E501  # tables of numbers read better in one line
import argparse
import math
import os
import time
import zlib

import msgspec
import redis

from gateway.contract import frame as f
from gateway.contract import keys
from gateway.contract.envelope import Header, SigningKey, seal

SURGE, LOST, BACK, OVER, LENGTH = 300.0, 458.0, 700.0, 780.0, 1200.0
DEVELOPMENT_KEY = "only-for-development-no-secret-here"


def ease(t, start, length):
    x = min(1.0, max(0.0, (t - start) / length))
    return x * x * (3 - 2 * x)


def bump(t, at, up, down):
    return 0.0 if t < at else min(1.0, (t - at) / up) * math.exp(-max(0.0, t - at - up) / down)


def wobble(name, t, amount):
    """Noise that moves smoothly: dice thrown every five seconds, joined by straight lines."""

    def dice(n):
        return zlib.crc32(f"{name}{n}".encode()) / 2**31 - 1

    step, part = int(t // 5), t % 5 / 5
    return amount * (dice(step) * (1 - part) + dice(step + 1) * part)


class Story:
    """The numbers of one second, `t` seconds into the story."""

    def __init__(self, t):
        self.t = t % LENGTH
        self.press = ease(self.t, SURGE, 12) * (1 - ease(self.t, OVER, 60))
        self.surge = ease(self.t, SURGE, 10) * (1 - ease(self.t, OVER - 20, 40))
        self.lost = LOST <= self.t < BACK
        self.gone = ease(self.t, LOST, 3) * (1 - ease(self.t, BACK, 25))

    def offered(self, tier):
        t = self.t
        base = {
            0: 6.0 + 3.4 * ease(t, SURGE - 40, 200) * (1 - ease(t, OVER, 200)) + wobble("o0", t, 0.9),
            1: 7.0 + 9.8 * ease(t, LOST, 95) * (1 - ease(t, BACK, 60)) + wobble("o1", t, 1.2),
            2: 3.4
            + self.surge * (78 + 56.4 * ease(t, SURGE + 12, 240))
            + wobble("o2", t, 0.8 + 7 * self.surge),
        }
        return max(0.2, base[tier])

    def admitted(self, tier):
        most = {
            0: 1e9,
            1: 60 * (1 - self.press) + (8.6 - 2.3 * self.gone) * self.press + wobble("c1", self.t, 0.4),
            2: 60 * (1 - self.press) + (2.6 - 1.3 * self.gone) * self.press + wobble("c2", self.t, 0.3),
        }
        return max(0.0, min(self.offered(tier), most[tier]))

    def shed(self, tier):
        total = self.offered(tier) - self.admitted(tier)
        if total < 0.05:
            return {}
        parts = {
            1: {"early_drop": 0.876, "retry_budget": 0.105, "concurrency_limited": 0.019},
            2: {"fast_reject": 0.5964, "rate_limited": 0.3004, "retry_budget": 0.1032},
        }
        return {reason: round(total * share, 2) for reason, share in parts[tier].items()}

    def waiting(self, tier):
        t, p = self.t, self.press
        base = {
            0: 0.4 + 1.6 * p + 5 * bump(t, SURGE, 3, 9) + wobble("w0", t, 0.7),
            1: 1.8
            + 6.2 * p
            + 6 * self.gone
            + 15 * bump(t, SURGE, 4, 14)
            + 12 * bump(t, LOST, 4, 16)
            + wobble("w1", t, 1.8),
            2: 1.2 + 4.8 * p + 34 * bump(t, SURGE, 4, 11) + wobble("w2", t, 1.1),
        }
        return max(0, round(base[tier]))

    def ttft(self, tier):
        t, p = self.t, self.press
        base = {
            0: 0.31
            + 0.40 * p
            + 0.16 * bump(t, SURGE, 4, 12)
            + 0.12 * bump(t, LOST, 4, 18)
            + wobble("f0", t, 0.04),
            1: 0.92 + 1.3 * p + 1.18 * self.gone + wobble("f1", t, 0.16),
            2: 1.7 + 10.1 * p + wobble("f2", t, 0.5),
        }
        return round(base[tier], 3)


TIERS = (
    ("realtime-interactive", 200, 0.5, 1.0, 0.15, 140.0),
    ("agent-workflow", 500, 2.4, 4.0, 0.2, 303.0),
    ("batch-extraction", 1000, 10.0, 15.0, 0.3, 420.0),
)
BACKENDS = (
    ("b1", "vllm", 0.42, 0.91),
    ("b2", "vllm", 0.41, 0.97),
    ("b3", "vllm", 0.43, 0.84),
    ("b4", "sglang", 0.40, 0.88),
)
TENANTS = (
    ("northwind-extract", 2, 2.0, 1.0), ("kestrel-docs", 2, 0.6, 0.05), ("vela-labels", 2, 0.4, 0.03),
    ("polar-index", 2, 0.3, 0.02), ("atlas-agents", 1, 3.0, 0.0), ("nimbus-ops", 1, 2.0, 0.0),
    ("fathom-research", 1, 1.3, 0.0), ("relay-triage", 1, 0.7, 0.0), ("helio-chat", 0, 3.1, 0.0),
    ("lumen-search", 0, 1.7, 0.0), ("orchid-voice", 0, 1.2, 0.0),
)  # fmt: skip


def tier_frames(s):
    rows = []
    for tier, (name, size, budget, ttft, tpot, per_answer) in enumerate(TIERS):
        shed = s.shed(tier)
        waiting = s.waiting(tier)
        rows.append(
            f.TierFrame(
                pool="chat-70b", tier=tier, name=name, offered_per_s=round(s.offered(tier), 2),
                admitted_per_s=round(s.admitted(tier), 2), shed_per_s=shed, refused_429_per_s=round(sum(shed.values()), 2),
                waiting=waiting, max_size=size, delay_budget_s=budget,
                oldest_wait_s=round(budget * min(0.95, 0.1 + 0.75 * s.press), 2) if waiting else 0.0,
                in_flight=round((41, 61, 14)[tier] * (0.45 + 0.55 * s.press)), ttft_p50_s=round(s.ttft(tier) * 0.6, 3),
                ttft_p95_s=s.ttft(tier), tpot_p50_s=0.035, tpot_p95_s=0.05 + 0.03 * s.press, ttft_objective_s=ttft,
                tpot_objective_s=tpot, goodput_tokens_per_s=round(per_answer * s.admitted(tier)),
                retries_per_s=round(s.surge * s.offered(tier) * 0.4, 2) if tier else 0.0, pressure=round(0.93 * s.press, 2),
            )
        )  # fmt: skip
    rows.append(
        f.TierFrame(
            pool="embed-large", tier=1, name="agent-workflow", offered_per_s=2.1, admitted_per_s=2.1, shed_per_s={},
            refused_429_per_s=0.0, waiting=0, max_size=500, delay_budget_s=2.4, oldest_wait_s=0.0, in_flight=2,
            ttft_p50_s=0.04, ttft_p95_s=0.09, tpot_p50_s=None, tpot_p95_s=None, ttft_objective_s=4.0,
            tpot_objective_s=0.2, goodput_tokens_per_s=0.0, retries_per_s=0.0, pressure=0.0,
        )
    )  # fmt: skip
    return tuple(rows)


def backend_frames(s, now):
    rows = []
    for i, (name, engine, low, high) in enumerate(BACKENDS):
        is_out = name == "b4" and s.lost
        kv = low + (high - low) * s.press + wobble("kv" + name, s.t, 0.018 + 0.012 * s.press)
        limit = 0.0 if is_out else round(64 - (18 + 6 * (i == 1)) * s.press + wobble("l" + name, s.t, 1))
        in_flight = (
            0
            if is_out
            else min(int(limit), round(23 + (18 - 4 * i) * s.press + 12 * bump(s.t, SURGE, 5, 12)))
        )
        by_tier = (in_flight * 35 // 100, in_flight * 53 // 100)
        binding = None if s.press < 0.5 or is_out else "prefill" if name == "b3" else "kv"
        probe = now + 30 - (s.t - LOST) % 30
        rows.append(
            f.BackendFrame(
                backend=name, pool="chat-70b", engine=engine, limit=limit, limit_max=64, reserved_seats=0 if is_out else 3,
                in_flight=in_flight, in_flight_by_tier=(*by_tier, in_flight - sum(by_tier)),
                engine_running=None if is_out else in_flight, engine_waiting=None if is_out else (1, 4, 0, 2)[i] * round(s.press),
                kv_ratio=None if is_out else round(kv, 3), kv_source=None if is_out else "gauge",
                prefill_ratio=0.0 if is_out else round((0.22, 0.19, 0.24, 0.21)[i] + (0.45, 0.24, 0.73, 0.4)[i] * s.press, 3),
                kv_use_ratio=None if is_out else round(kv, 3), sequences_ratio=round(in_flight / limit, 3) if limit else 0.0,
                binding=binding,
                breaker=f.BreakerFrame(state="open" if is_out else "closed", manual=False, until=probe if is_out else None),
                telemetry_age_s=round(s.t - LOST, 1) if is_out else round(0.6 + 0.1 * i, 1),
                preemptions_per_s=None if is_out else round(max(0.0, 0.4 * s.press), 1) if name == "b2" else 0.0,
                slow=1.0, tpot_s=None if is_out else round(0.035 + 0.02 * s.press, 3),
            )
        )  # fmt: skip
    rows.append(
        f.BackendFrame(
            backend="e1", pool="embed-large", engine="llama_cpp", limit=8.0, limit_max=8, reserved_seats=0, in_flight=2,
            in_flight_by_tier=(0, 2, 0), engine_running=2, engine_waiting=0, kv_ratio=None, kv_source=None, prefill_ratio=0.1,
            kv_use_ratio=None, sequences_ratio=0.25, binding=None, breaker=f.BreakerFrame(state="closed", manual=False, until=None),
            telemetry_age_s=0.4, preemptions_per_s=None, slow=1.0, tpot_s=None,
        )
    )  # fmt: skip
    return tuple(rows)


def tenant_frames(s):
    rows = []
    for name, tier, usual, part in TENANTS:
        offered = usual + part * s.surge * (s.offered(2) * 0.9) + wobble(name, s.t, usual * 0.1)
        ratio = 1 - s.admitted(tier) / s.offered(tier)
        shed = max(0.0, offered * ratio)
        reasons = s.shed(tier)
        rows.append(
            f.TenantFrame(
                tenant=name, pool="chat-70b", tier=tier, offered_per_s=round(offered, 2),
                admitted_per_s=round(offered - shed, 2), shed_per_s=round(shed, 2), waiting=max(0, round(s.waiting(tier) * 0.3)),
                in_flight=round(6 + 4 * (2 - tier)), cost_share=round((0.19, 0.12, 0.05)[tier] * (0.6 + usual / 8), 3),
                main_reason=max(reasons, key=reasons.get) if reasons and shed > 0.05 else None,
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda r: -r.offered_per_s))


def event_frames(t, now, speed=1.0):
    told = (
        (20.0, "policy", "Revision 41 published by m.okafor", None),
        (SURGE, "load", "northwind-extract 2.0 to 83/s", None),
        (SURGE + 4, "shedding", "P2 of chat-70b is shed: fast_reject", "chat-70b"),
        (SURGE + 50, "limit", "b2 KV target 0.90 to 0.89", "b2"),
        (LOST, "breaker", "breaker of b4: closed to open", "b4"),
        (LOST + 14, "shedding", "P1 of chat-70b is shed: early_drop", "chat-70b"),
        (BACK, "breaker", "breaker of b4: half-open to closed", "b4"),
        (OVER + 60, "shedding", "P2 of chat-70b is no longer shed", "chat-70b"),
    )
    start = now - t % LENGTH / speed
    return tuple(
        f.EventFrame(at=round(start + at / speed), kind=kind, text=text, target=target)
        for at, kind, text, target in told
        if at <= t % LENGTH
    )


def frame_at(t, now, *, speed=1.0, **changes):
    """The frame of one second of the story; `changes` replaces fields of the Frame."""
    s = Story(t)
    whole = f.Frame(
        at=now,
        tiers=tier_frames(s),
        backends=backend_frames(s, now),
        backends_left_out=0,
        tenants=tenant_frames(s),
        gateways=tuple(
            f.GatewayFrame(
                gateway=f"gw-{n}", report_age_s=0.3, snapshot_revision=41, snapshot_refused=None, bounds_epoch=7,
                bounds_seq=int(t), share=round(1 / 3, 3), ledger_imbalance=0, draining=False, degraded=False,
            )
            for n in (1, 2, 3)
        ),
        control=f.ControlFrame(
            leader="control-1", epoch=7, seq=int(t), tick_age_s=0.0, tick_duration_s=0.04, revision=41,
            lowest_applied_revision=41,
        ),
        overrides=(),
        events=event_frames(t, now, speed),
        incidents_open=0,
    )  # fmt: skip
    return msgspec.structs.replace(whole, **changes)


def publish(client, frame, signing_key=DEVELOPMENT_KEY):
    """What the slow loop does with a frame: append, set, tell. Returns the entry's id in the stream."""
    body = msgspec.json.encode(frame)
    header = Header(
        kind="frame",
        generation=1,
        epoch=frame.control.epoch,
        seq=frame.control.seq,
        sent_at=frame.at,
        key_id="",
    )
    entry = client.xadd(keys.FRAMES, {"f": body}, maxlen=keys.FRAMES_MAX, approximate=True)
    client.set(keys.FRAME, seal(SigningKey(signing_key.encode()), header, body))
    client.publish(keys.CHANGES, f"frame {frame.control.seq}")
    return entry


def backfill(client, seconds, start, now, *, skip=()):
    """History as if the story had run for `seconds` already; stream ids are those of the acted time."""
    pipe = client.pipeline(transaction=False)
    for k in range(seconds, 0, -1):
        if k not in skip:
            at = now - k
            pipe.xadd(
                keys.FRAMES, {"f": msgspec.json.encode(frame_at(start - k, at))}, id=f"{int(at * 1000)}-0"
            )
    pipe.execute()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
    parser.add_argument("--start", type=float, default=0.0, help="seconds into the story")
    parser.add_argument("--speed", type=float, default=1.0, help="story seconds per second")
    parser.add_argument("--history", type=int, default=900, help="seconds of history to write first")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to go on")
    args = parser.parse_args()
    client = redis.Redis.from_url(args.url, socket_timeout=2)
    began = time.time()
    if args.history:
        client.delete(keys.FRAMES)
        backfill(client, args.history, args.start + LENGTH, began)
    while time.time() - began < args.seconds:
        now = time.time()
        publish(client, frame_at(args.start + LENGTH + (now - began) * args.speed, now, speed=args.speed))
        time.sleep(max(0.0, 1.0 - (time.time() - now)))


if __name__ == "__main__":
    main()
