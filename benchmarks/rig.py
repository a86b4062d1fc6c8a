"""The processes of the benchmark: gateway, nginx, backend and load, each on its core, each ended by its id.

The gateway is the real one (`python -m gateway`) with its snapshot in a real Valkey, and nginx from Debian does what a
plain reverse proxy does, in the same run on the same core. One core is theirs; everything else is on the other.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO
from urllib.request import ProxyHandler, build_opener

import msgspec

from benchmarks.load import Plan, Seen
from gateway.contract import keyring, keys
from gateway.contract.codec import encode
from gateway.contract.envelope import Header, SigningKey, seal
from gateway.contract.snapshot import (
    BackendSpec,
    GrantSpec,
    KeySpec,
    PoolSpec,
    Snapshot,
    TenantSpec,
    TierSpec,
)
from gateway.core.policy import BackendPolicy, LimitPolicy, PoolPolicy, QueuePolicy, default_tiers
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm
from tests.fakes.valkey import running_valkey

PEPPER = b"a pepper for benchmarks only"
SIGNING = SigningKey(b"a signing key for benchmarks only")
KEY = keyring.mint("bench", random.Random("bench").randbytes(keyring.RANDOM_BYTES))  # noqa: S311  # repeatable
WAIT_S = 20.0
REALTIME = "BENCH_REALTIME" in os.environ  # see docs/benchmarks.md
TENANTS = 50  # that exist besides the one that calls

NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log crit; worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log {dir}/access.log; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  keepalive_requests 1000000000; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 120s;
  limit_conn_zone $server_port zone=one:1m; limit_conn_status 429;
  upstream fast {{ server 127.0.0.1:{fast}; keepalive 512; keepalive_requests 1000000000; }}
  upstream paced {{ server 127.0.0.1:{paced}; }}
  upstream idle {{ server 127.0.0.1:{idle}; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location /fast/ {{ proxy_pass http://fast/; }}
    location /paced/ {{ proxy_pass http://paced/; proxy_buffering off; }}
    location /idle/ {{ proxy_pass http://idle/; proxy_buffering off; }}
    location /full/ {{ limit_conn one 1; proxy_pass http://idle/; proxy_buffering off; }}
  }}
}}
"""


class Missing(Exception):  # noqa: N818  # named for what is the matter
    """Something that the benchmark needs is not installed."""


@dataclass(frozen=True, slots=True)
class Cores:
    """`proxy` for gateway or nginx, `rest` for load, backend and Valkey."""

    proxy: int
    rest: int


@dataclass(slots=True)
class Rig:
    """Everything that runs."""

    cores: Cores
    directory: Path
    upstream: dict[str, int] = field(default_factory=dict)
    gateway_port: int = 0
    gateway_ops: str = ""
    gateway_pid: int = 0
    nginx_port: int = 0
    nginx_pid: int = 0

    def request(
        self, kind: str, *, stream: bool = False, path: str = "/v1/chat/completions", of: str = ""
    ) -> str:
        """A request to the pool `kind`; `of` is nginx's prefix for the same."""
        body = {
            "model": kind,
            "max_tokens": 16,
            "messages": [{"role": "user", "content": "Say a few words."}],
        }
        if path.endswith("embeddings"):
            body = {"model": kind, "input": "a few words"}
        if stream:
            body["stream"] = True
        text = json.dumps(body, separators=(",", ":"))
        return (
            f"POST {of}{path} HTTP/1.1\r\nhost: bench.test\r\nauthorization: Bearer {KEY.key}\r\n"
            f"content-type: application/json\r\nuser-agent: bench/1\r\naccept: */*\r\n"
            f"content-length: {len(text)}\r\n\r\n{text}"
        )

    def run(self, plan: Plan) -> Seen:
        """Apply load; the access logs are emptied afterwards."""
        process = subprocess.Popen(  # our own program
            [sys.executable, "-m", "benchmarks.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        _place(process.pid, self.cores.rest)
        try:
            out, _ = process.communicate(msgspec.json.encode(plan), timeout=plan.warm_s + plan.seconds + 90)
        finally:
            _end(process)
        if process.returncode:
            raise RuntimeError(f"the load failed: {plan}")
        for name in ("access.log", "gateway.log"):
            os.truncate(self.directory / name, 0)
        return msgspec.json.decode(out, type=Seen)

    def decisions(self) -> dict[str, float]:
        """How many quota decisions came from memory, Valkey, or alone."""
        url = f"http://{self.gateway_ops}/metrics"
        with build_opener(ProxyHandler({})).open(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            if line.startswith("sluicegate_quota_decisions_total{"):
                how = line.split('how="')[1].split('"')[0]
                found[how] = found.get(how, 0.0) + float(line.rpartition(" ")[2])
        return found


def _place(pid: int, core: int) -> None:
    """On its core; before all other work of the machine where that was asked for and is allowed."""
    os.sched_setaffinity(pid, {core})
    if REALTIME:
        with suppress(PermissionError):
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def cores() -> Cores:
    """The first and the last core that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[0], allowed[-1])


def snapshot(upstream: dict[str, int]) -> Snapshot:
    """Pools of every kind, many tenants, one caller with quotas that it never reaches; what is refused is in tier 2."""
    fast_reject = QueuePolicy(max_size=1, timeout_s=1.0, drop=DropPolicy.FAST_REJECT)
    tiers = tuple(
        replace(tier, queue=fast_reject) if tier.rank == 2 else tier for tier in default_tiers()
    )  # P2
    pools, backends, grants = [], [], []
    others = [f"tenant-{number}" for number in range(TENANTS)]
    for name, target, limit in (
        (
            "fast",
            "fast",
            16_384,
        ),  # a tenth of a limit is open at once, the rest as a new backend proves itself
        ("paced", "paced", 16_384),
        ("idle", "idle", 16_384),
        ("full", "idle", 1),
    ):
        bound = LimitPolicy(
            algorithm=LimitAlgorithm.FIXED,
            min_limit=limit,
            initial_limit=limit,
            max_limit=limit,
            reserved_seats=0,
        )
        pools.append(PoolSpec(policy=PoolPolicy(name=name, limit=bound), models=(name,)))
        policy = BackendPolicy(name=f"{name}-1", pool=name)
        backends.append(BackendSpec(policy=policy, url=f"http://127.0.0.1:{upstream[target]}", engine="vllm"))
        grants += [
            GrantSpec(
                tenant=tenant,
                pool=name,
                tier=2 if name == "full" else 1,
                requests_per_min=100_000_000,
                tokens_per_min=10_000_000_000,
                concurrency=5000,
            )
            for tenant in ("bench", *others)
        ]
    return Snapshot(
        revision=1,
        created_at=time.time(),
        tiers=tuple(TierSpec(policy=tier) for tier in tiers),
        pools=tuple(pools),
        backends=tuple(backends),
        tenants=tuple(TenantSpec(name=name) for name in ("bench", *others)),
        grants=tuple(grants),
        keys=(KeySpec(public_id=KEY.public_id, tenant="bench", digests=(keyring.digest(PEPPER, KEY.key),)),),
    )


@contextmanager
def running() -> Iterator[Rig]:
    """All processes, started and ended.

    Raises:
        Missing: nginx is not installed.
    """
    if shutil.which("nginx") is None:
        raise Missing("nginx is the yardstick: apt-get install nginx-light")
    where = cores()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {where.rest})
    try:
        with tempfile.TemporaryDirectory(prefix="sgbench-") as name, running_valkey() as valkey:
            _place(valkey.pid, where.rest)
            rig = Rig(where, Path(name))
            with _upstream(rig), _nginx(rig):
                header = Header(kind="snapshot", generation=1, epoch=0, seq=1, sent_at=time.time(), key_id="")
                with valkey.client() as client:
                    client.set(keys.SNAPSHOT, seal(SIGNING, header, encode(snapshot(rig.upstream))))
                with _gateway(rig, valkey.url):
                    yield rig
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _upstream(rig: Rig) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.upstream"], stdout=subprocess.PIPE)
    try:
        _place(process.pid, rig.cores.rest)
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        rig.upstream = json.loads(process.stdout.readline())
        yield
    finally:
        _end(process)


@contextmanager
def _nginx(rig: Rig) -> Iterator[None]:
    rig.nginx_port = _free_port()
    config = rig.directory / "nginx.conf"
    config.write_text(NGINX.format(dir=rig.directory, port=rig.nginx_port, **rig.upstream))
    process = subprocess.Popen(  # noqa: S603  # from the PATH, as checked
        ["nginx", "-c", str(config), "-e", str(rig.directory / "error.log")]  # noqa: S607
    )
    try:
        _place(process.pid, rig.cores.proxy)
        _await_port(process, rig.nginx_port)
        rig.nginx_pid = process.pid
        yield
    finally:
        _end(process)


@contextmanager
def _gateway(rig: Rig, redis_url: str) -> Iterator[None]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path.cwd()),
        "REDIS_URL": redis_url,
        "SLUICEGATE_KEY_PEPPER": PEPPER.decode(),
        "SLUICEGATE_SIGNING_KEY": SIGNING.secret.decode(),
        "SLUICEGATE_STATE_DIR": str(rig.directory),
        "SLUICEGATE_LISTEN": "127.0.0.1:0",
        "SLUICEGATE_OPS_LISTEN": "127.0.0.1:0",
        "SLUICEGATE_DRAIN_DELAY_S": "0",
        "SLUICEGATE_DRAIN_S": "1",
    }
    log = rig.directory / "gateway.log"
    with log.open("ab") as output:
        process = _start_gateway(environment, output)
    try:
        _place(process.pid, rig.cores.proxy)
        ready = _first_line(process, log)
        if "from valkey" not in ready:
            raise RuntimeError(f"the gateway did not start: {ready}")
        words = ready.replace(",", "").split()
        rig.gateway_port, rig.gateway_ops = int(words[2].rpartition(":")[2]), words[5]
        rig.gateway_pid = process.pid
        yield
    finally:
        _end(process)


def _start_gateway(environment: dict[str, str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
    extra = os.environ.get("BENCH_GATEWAY_COMMAND")  # a profiler, say
    command = extra.split() if extra else [sys.executable, "-m", "gateway"]
    return subprocess.Popen(command, env=environment, stdout=output)  # noqa: S603  # our own program


def _first_line(process: "subprocess.Popen[bytes]", log: Path) -> str:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and process.poll() is None:
        text = log.read_text()
        if "\n" in text:
            return text.split("\n", 1)[0]
        time.sleep(0.02)
    return ""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _await_port(process: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError("nginx did not start")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End it in order, then for sure."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
