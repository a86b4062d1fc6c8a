import socket
from pathlib import Path

import pytest

from control.supervisor import banner, plan, probes, traffic
from control.supervisor.credentials import Credentials, DemoKey, read_credentials
from control.supervisor.state import StartRefused

ADDRESSES = plan.Addresses(
    gateway=8080, gateway_ops=8081, web=8000, engines=(9101, 9102), socket=Path("/s/v.sock")
)
CREDENTIALS = Credentials("operator", "pw", (DemoKey("P0", "support-chat", "sg_live_x"),))


def test_every_process_has_a_name_and_one_line_of_what_it_is() -> None:
    specs = [*plan.engine_specs(ADDRESSES), *plan.service_specs(ADDRESSES, Path("/s"))]
    text = banner.describe(specs, ADDRESSES, CREDENTIALS, Path("/s"), 3.2)
    assert len({spec.name for spec in specs}) == len(specs)
    for spec in specs:
        assert f"{spec.name} " in text
        assert spec.what in text
        assert "\n" not in spec.what
    for word in ("http://127.0.0.1:8000/", "/admin/", "password pw", "sg_live_x", "curl", "Ctrl-C"):
        assert word in text


def test_without_engines_the_banner_says_how_to_add_a_backend() -> None:
    bare = plan.Addresses(gateway=1, gateway_ops=2, web=3, engines=(), socket=None)
    specs = plan.service_specs(bare, Path("/s"))
    assert "No engine was started: add yours at" in banner.describe(specs, bare, CREDENTIALS, Path("/s"), 1.0)


def test_the_overloaded_minute_is_more_than_the_engines_can_do_and_the_calm_one_is_less() -> None:
    engines = plan.engine_specs(ADDRESSES)
    seats = sum(int(spec.command[list(spec.command).index("--seats") + 1]) for spec in engines)
    assert sum(load.calm for load in traffic.LOADS) < seats / 2
    assert sum(load.overload for load in traffic.LOADS) > 2 * seats
    told = [word for word in plan.seed_words(ADDRESSES) if word.startswith("--backend=")]
    assert sum(int(word.rpartition(",")[2]) for word in told) == seats


def test_the_environment_keeps_what_the_caller_set_but_not_where_things_listen() -> None:
    outer = {
        "SLUICEGATE_LOG_LEVEL": "DEBUG",
        "SLUICEGATE_SECRET_KEY": "theirs",
        "SLUICEGATE_LISTEN": "0.0.0.0:1",
    }
    made = plan.environment(outer, {"SLUICEGATE_SECRET_KEY": "ours"}, Path("/s"), ADDRESSES)
    assert made["SLUICEGATE_LOG_LEVEL"] == "DEBUG"
    assert made["SLUICEGATE_SECRET_KEY"] == "theirs"
    assert made["SLUICEGATE_LISTEN"] == "127.0.0.1:8080"
    assert made["REDIS_URL"] == "unix:///s/v.sock"


def test_a_valkey_of_yours_is_used_instead_of_the_embedded_one(tmp_path: Path) -> None:
    addresses = plan.choose_addresses(tmp_path, {"REDIS_URL": "redis://elsewhere"}, demo=False)
    assert addresses.socket is None
    assert addresses.engines == ()
    outer = {"REDIS_URL": "redis://elsewhere"}
    assert plan.environment(outer, {}, tmp_path, addresses)["REDIS_URL"] == "redis://elsewhere"


def test_no_port_is_given_twice(tmp_path: Path) -> None:
    wanted = dict.fromkeys(("GATEWAY_PORT", "GATEWAY_OPS_PORT", "WEB_PORT", "ENGINE_PORT"), "39100")
    found = plan.choose_addresses(tmp_path, wanted, demo=True)
    ports = [found.gateway, found.gateway_ops, found.web, *found.engines]
    assert len(set(ports)) == 5
    assert min(ports) >= 39100


@pytest.mark.parametrize("text", ["x", "0", "65536", "-1", "80.5"])
def test_a_port_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(StartRefused, match="WEB_PORT="):
        probes.port_number("WEB_PORT", text, 8000)


def test_a_store_that_nobody_answers_at_is_named_without_its_password(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert probes.store_problem(f"redis://:word@127.0.0.1:{port}/0") is None
    told = probes.store_problem(f"redis://:word@127.0.0.1:{port}/0")
    assert told == f"nothing answers at 127.0.0.1:{port} (Connection refused)"
    told = probes.store_problem(f"unix://{tmp_path}/none.sock")
    assert told == f"nothing answers at {tmp_path}/none.sock (No such file or directory)"


@pytest.mark.parametrize("url", ["nonsense", "redis://", "redis://h:x", "http://127.0.0.1:1"])
def test_what_is_no_address_of_a_store_is_left_to_the_settings(url: str) -> None:
    assert probes.store_problem(url) is None


def test_credentials_that_are_missing_or_broken_are_said_with_what_to_do(tmp_path: Path) -> None:
    for content in (None, "{", "[]", '{"operator":{}}'):
        if content is not None:
            (tmp_path / "credentials.json").write_text(content)
        with pytest.raises(StartRefused, match="Remove it: new demo keys are made"):
            read_credentials(tmp_path)
