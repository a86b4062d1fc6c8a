"""Start everything, say what it is and where, keep it running until Ctrl-C."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from control.supervisor import plan, probes, valkey
from control.supervisor.banner import describe
from control.supervisor.children import Children, ChildSpec
from control.supervisor.credentials import read_credentials
from control.supervisor.state import StartRefused, load_secrets, lock

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run until SIGINT or SIGTERM; 0 after an orderly end, 1 where the start was refused."""
    stop = _Stop()
    state = Path(os.environ.get("SLUICEGATE_STATE_DIR") or ROOT / "var").resolve()
    try:
        for folder in (state, state / "valkey", state / "logs"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock(state):
            return _run(state, os.environ, stop)
    except StartRefused as refused:
        print(f"make up: {refused}", file=sys.stderr)  # noqa: T201  # for a person
        return 1
    except OSError as error:
        print(f"make up: {state}: {error.strerror}", file=sys.stderr)  # noqa: T201  # for a person
        return 1


def _run(state: Path, outer: Mapping[str, str], stop: "_Stop") -> int:
    demo = outer.get("DEMO", "1").strip().lower() not in {"0", "no", "false", "off"}
    addresses = plan.choose_addresses(state, outer, demo=demo)
    variables = plan.environment(outer, load_secrets(state), state, addresses)
    children = Children(variables, ROOT, state / "logs", _say, is_stopping=stop.is_asked)
    started_at = time.monotonic()
    try:
        try:
            specs = _start_all(children, addresses, state, demo=demo, stop=stop)
        except StartRefused:
            if stop.is_asked():  # Ctrl-C reaches a command that prepares something, too: no fault of its own
                return 0
            raise
        if stop.is_asked():
            return 0
        credentials = read_credentials(state)
        _say(describe(specs, addresses, credentials, state, time.monotonic() - started_at))
        while not stop.is_asked():
            children.keep()
            stop.wait(0.2)
        _say("ending ...")
        return 0
    finally:
        children.end()


def _start_all(
    children: Children, addresses: plan.Addresses, state: Path, *, demo: bool, stop: "_Stop"
) -> list[ChildSpec]:
    """Start in order: what others need first, then the product, then the demo callers."""
    if addresses.socket is not None:
        addresses.socket.unlink(missing_ok=True)
        _start(children, [plan.valkey_spec(valkey.find_binary(), addresses, state)], stop)
    elif problem := probes.store_problem(os.environ.get("REDIS_URL", "")):
        # No reason to stop: the gateway serves from its snapshot on disk, and all go on when it is back.
        _say(f"REDIS_URL: {problem}. Until it does, no change reaches the gateway and nothing live is shown.")
    _say("preparing the database ...")
    _manage(children, ["migrate", "--no-input", "--verbosity", "0"], stop)
    _start(children, plan.engine_specs(addresses), stop)
    _manage(children, ["seed_demo", *plan.seed_words(addresses)], stop)
    _start(children, plan.service_specs(addresses, state), stop)
    if demo:
        _start(children, [plan.traffic_spec(addresses, state / "credentials.json")], stop)
    return [child.spec for child in children.running]


def _manage(children: Children, words: list[str], stop: "_Stop") -> None:
    """Run a management command to its end."""
    if not stop.is_asked():
        children.run_once(words[0], [sys.executable, str(ROOT / "manage.py"), *words])


def _start(children: Children, specs: list[ChildSpec], stop: "_Stop") -> None:
    """Start some together, then wait for all of them."""
    if stop.is_asked():
        return
    started = [children.start(spec) for spec in specs]
    for child in started:
        if not stop.is_asked():
            children.wait_ready(child)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # this is what a person sees


class _Stop:
    """Turns SIGINT and SIGTERM into a flag that a loop can wait for."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def is_asked(self) -> bool:
        """Whether it is time to end."""
        return self._asked

    def wait(self, seconds: float) -> None:
        """Sleep in short pieces, so that a signal ends it soon."""
        until = time.monotonic() + seconds
        while not self._asked and time.monotonic() < until:
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
