"""`python -m gateway.simulation.serve`: one simulated engine behind HTTP."""

import argparse
import socket
import sys
from dataclasses import replace

import uvicorn

from gateway.simulation.profiles import PROFILES, EngineSpec
from gateway.simulation.serve.app import EngineApp
from gateway.simulation.serve.driver import Driver
from gateway.simulation.serve.framing import Dialect

ALIASES = {"vllm": "cpu8", "llama": "llama4"}
BACKLOG = 2048


def main(arguments: list[str] | None = None) -> int:
    """Bind, print the URL on a line of its own, and serve until SIGTERM or SIGINT."""
    options = _parse(arguments)
    host, _, port = options.listen.rpartition(":")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), int(port)))
    except OSError as error:
        listener.close()
        sys.stderr.write(f"cannot listen on {options.listen}: {error}\n")
        return 1
    listener.listen(BACKLOG)
    driver = Driver(_spec(options), seed=options.seed, slow_down=options.slow_down)
    app = EngineApp(driver, dialect=_dialect(options), model=options.model, seed=options.seed)
    bound = listener.getsockname()
    sys.stdout.write(f"http://{host or bound[0]}:{bound[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, http="httptools", lifespan="on", log_level="critical", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway.simulation.serve", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:9101", help="HOST:PORT; port 0 takes a free one")
    parser.add_argument("--profile", default="gpu", choices=[*PROFILES, *ALIASES])
    parser.add_argument(
        "--engine",
        choices=[dialect.value for dialect in Dialect],
        help="whose manners; default: the profile's",
    )
    parser.add_argument("--model", default="tiny", help="the model's name")
    parser.add_argument("--seats", type=_positive, help="sequences that run at once")
    parser.add_argument("--kv-blocks", type=_positive, help="blocks of the KV cache")
    parser.add_argument(
        "--max-waiting", type=_positive, help="the engine refuses with 503 when so many wait inside it"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--slow-down", type=_factor, default=1.0, help="every step takes that many times as long"
    )
    options = parser.parse_args(arguments)
    if not options.listen.rpartition(":")[2].isdigit():
        parser.error("--listen must be HOST:PORT")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _factor(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a positive number")
    return value


def _spec(options: argparse.Namespace) -> EngineSpec:
    spec = PROFILES[ALIASES.get(options.profile, options.profile)].engine
    if options.seats is not None:
        spec = replace(spec, seats=options.seats)
    if options.kv_blocks is not None:
        spec = replace(spec, kv_tokens=options.kv_blocks * spec.block_tokens)
    return replace(spec, max_waiting=options.max_waiting)


def _dialect(options: argparse.Namespace) -> Dialect:
    if options.engine is not None:
        return Dialect(options.engine)
    return Dialect.LLAMA_CPP if options.profile.startswith("llama") else Dialect.VLLM


if __name__ == "__main__":
    sys.exit(main())
