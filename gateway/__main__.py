"""One gateway process: read settings, build, serve, drain on SIGTERM. The only real clock and dice.

    python -m gateway            serve
    python -m gateway --check    validate the settings and the snapshot on disk, and say what is wrong

Exit codes: 0 drained, 1 `--check` found something, 2 a setting or an address is wrong (one line on stderr says which).
"""

import asyncio
import gc
import os
import random
import secrets
import signal
import sys
import time

import uvloop

from gateway import logs
from gateway.clocks import Clocks
from gateway.contract.envelope import SigningKey
from gateway.process import Process, World
from gateway.settings import Settings, SettingsRefused, read_settings
from gateway.snapshots import SNAPSHOT, Snapshots
from gateway.state import State

CLOCKS = Clocks(time.monotonic, time.time)
STDOUT = 1


def main(arguments: list[str]) -> int:
    """Run the command; the process's exit code."""
    if arguments not in ([], ["--check"]):
        return _refuse("usage: python -m gateway [--check]")
    try:
        settings = read_settings(os.environ)
    except SettingsRefused as refusal:
        return _refuse(str(refusal))
    logs.set_up(settings.log_level)
    if arguments:
        return check(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings))


async def serve(settings: Settings) -> int:
    """Serve until a signal says to stop; a second one ends everything at once."""
    world = World(
        clocks=CLOCKS,
        dice=random.Random(secrets.randbits(128)).random,  # noqa: S311  # jitter, no secret
        boot=secrets.token_hex(6),
        access_descriptor=STDOUT if settings.access_log == "stdout" else None,
        say=_say,
    )
    process = Process(settings, world)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, process)
    gc.collect()
    gc.freeze()  # what was built now lives as long as the process: no collection needs to look at it
    try:
        await process.run()
    except OSError as fault:
        return _refuse(f"cannot listen: {fault.strerror}")
    return 0


def check(settings: Settings) -> int:
    """Say whether the snapshot on disk would be served."""
    state = State()
    snapshots = Snapshots(
        state=state,
        signing_keys=tuple(SigningKey(secret) for secret in settings.signing_keys),
        gateway=settings.gateway_id,
        directory=settings.directory,
        clocks=CLOCKS,
        deliver=lambda _event: None,
    )
    if snapshots.load() and state.applied is not None:
        _say(f"settings good, snapshot revision {state.applied.revision} on disk good")
        return 0
    if (settings.directory / f"{SNAPSHOT}.sealed").exists():
        _say(f"settings good, snapshot on disk refused: {state.snapshot_refused or 'not readable'}")
        return 1
    _say(f"settings good, no snapshot in {settings.directory} yet")
    return 0


def _stop(process: Process) -> None:
    if process.stop.is_set():
        process.hurry.set()
    process.stop.set()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _refuse(line: str) -> int:
    sys.stderr.write(f"gateway: {line}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
