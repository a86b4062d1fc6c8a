"""Processes die; the gateway goes on serving, and live data is back within 5 s of their return."""

import time

import openai
import pytest

from tests.fakes.system import System, until

pytestmark = [pytest.mark.e2e, pytest.mark.faults, pytest.mark.loop]

BACK_S = 5.0


def call(system: System, tier: str = "P0") -> str:
    with openai.OpenAI(
        base_url=system.base_url, api_key=system.key(tier), max_retries=0, timeout=20
    ) as client:
        answer = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "x"}], max_tokens=4
        )
    return answer.choices[0].message.content or ""


def is_live(system: System, since: float) -> bool:
    frame = system.frame()
    return frame is not None and frame.at > since


@pytest.mark.parametrize("name", ["worker-loop", "beat", "web", "worker-work"])
def test_the_gateway_serves_without_it_and_live_data_is_back_by_itself(system: System, name: str) -> None:
    system.end(name)
    try:
        for _ in range(3):
            assert call(system)
    finally:
        since = time.time()
        system.start(name)
    until(lambda: is_live(system, since), BACK_S, "live data")


def test_the_gateway_serves_without_valkey_and_live_data_is_back_within_5_s(system: System) -> None:
    system.end("valkey")
    try:
        for _ in range(3):
            assert call(system)
        time.sleep(2)
        assert call(system)
    finally:
        since = time.time()
        system.start("valkey")
    until(lambda: is_live(system, since), BACK_S, "live data")


def test_a_gateway_restarted_with_everything_else_down_serves_from_its_snapshot_on_disk(
    system: System,
) -> None:
    down = ["web", "beat", "worker-loop", "worker-work", "valkey"]
    for name in down:
        system.end(name)
    try:
        system.end("gateway")
        began = time.monotonic()
        system.start("gateway")
        until(lambda: call(system), 5.0, "the first answer")
        assert time.monotonic() - began < 5.0
    finally:
        since = time.time()
        for name in reversed(down):
            system.start(name)
    until(lambda: is_live(system, since), 2 * BACK_S, "live data")
