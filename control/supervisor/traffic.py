"""Demo callers of `make up`: three tiers, a calm minute and an overloaded one in turn. Loopback only.

python -m control.supervisor.traffic GATEWAY_URL CREDENTIALS MODEL
"""

import asyncio
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from control.supervisor.credentials import read_credentials

CALM_S, OVERLOAD_S = 60.0, 60.0
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
MAX_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Load:
    """How many callers of a tier are awake in a calm and in an overloaded minute, and what they send."""

    tier: str
    calm: int
    overload: int
    prompt_words: int
    max_tokens: int
    think_s: float


LOADS = (
    Load("P0", 2, 4, 80, 60, 1.5),
    Load("P1", 2, 24, 250, 120, 1.0),
    Load("P2", 1, 40, 350, 200, 0.5),
)


async def _call(client: httpx2.AsyncClient, key: str, model: str, load: Load, dice: random.Random) -> float:
    """One streamed call; returns how many seconds to rest before the next one."""
    words = " ".join("demo" for _ in range(max(1, int(dice.lognormvariate(0, 0.5) * load.prompt_words))))
    body = {
        "model": model,
        "stream": True,
        "max_tokens": max(4, int(dice.lognormvariate(0, 0.6) * load.max_tokens)),
        "messages": [{"role": "user", "content": words}],
    }
    headers = {"Authorization": f"Bearer {key}"}
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        async for _ in answer.aiter_raw():
            pass
        if answer.status_code < httpx2.codes.BAD_REQUEST:
            return dice.expovariate(1 / load.think_s)
        named = answer.headers.get("retry-after", "")
        return min(MAX_WAIT_S, float(named) if named.isdecimal() else 2.0) + dice.random()


async def _caller(client: httpx2.AsyncClient, key: str, model: str, load: Load, number: int) -> None:
    dice = random.Random(f"{load.tier}-{number}")  # noqa: S311  # not for secrets
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        overloaded = (loop.time() - began) % (CALM_S + OVERLOAD_S) >= CALM_S
        if number >= (load.overload if overloaded else load.calm):
            await asyncio.sleep(1.0)
            continue
        try:
            rest_s = await _call(client, key, model, load, dice)
        except httpx2.HTTPError:
            rest_s = 2.0
        await asyncio.sleep(rest_s)


async def run(url: str, credentials: Path, model: str) -> None:
    """Call until SIGTERM or SIGINT."""
    keys = {key.tier: key.key for key in read_credentials(credentials.parent).keys}
    limits = httpx2.Limits(max_connections=200, max_keepalive_connections=100)
    async with (
        httpx2.AsyncClient(base_url=url, timeout=60.0, limits=limits, trust_env=False) as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [
            group.create_task(_caller(client, keys[load.tier], model, load, number))
            for load in LOADS
            if load.tier in keys
            for number in range(load.overload)
        ]
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, lambda: [task.cancel() for task in tasks])


if __name__ == "__main__":
    if len(sys.argv) != 4 or urlsplit(sys.argv[1]).hostname not in LOOPBACK:  # three words
        sys.exit("usage: python -m control.supervisor.traffic http://127.0.0.1:PORT CREDENTIALS MODEL")
    asyncio.run(run(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
