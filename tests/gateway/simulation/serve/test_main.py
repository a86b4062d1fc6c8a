"""The command line of the simulated engine."""

import socket

import pytest

from gateway.simulation.serve.__main__ import _dialect, _parse, _spec, main
from gateway.simulation.serve.framing import Dialect


def test_a_profile_brings_its_own_manners():
    assert _dialect(_parse(["--profile", "llama4"])) is Dialect.LLAMA_CPP
    assert _dialect(_parse(["--profile", "llama"])) is Dialect.LLAMA_CPP
    assert _dialect(_parse(["--profile", "vllm"])) is Dialect.VLLM
    assert _dialect(_parse(["--profile", "llama4", "--engine", "vllm"])) is Dialect.VLLM


def test_seats_blocks_and_queue_can_be_set():
    spec = _spec(_parse(["--profile", "cpu8", "--seats", "3", "--kv-blocks", "10", "--max-waiting", "5"]))
    assert (spec.seats, spec.kv_tokens, spec.max_waiting) == (3, 320, 5)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seats", "0"],
        ["--seats", "many"],
        ["--slow-down", "0"],
        ["--slow-down", "inf"],
        ["--profile", "abacus"],
        ["--listen", "somewhere"],
    ],
)
def test_nonsense_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        _parse(arguments)
    assert caught.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_taken_port_is_named(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["--listen", listen]) == 1
    assert listen in capsys.readouterr().err
