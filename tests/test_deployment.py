"""What is deployed: docker-compose.yml and the Dockerfile, as far as they can be checked without a container engine."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "tests/fixtures/compose/compose_spec.json").read_text())
# The draft is named: the schema writes its address with a slip.
VALIDATOR = jsonschema.Draft201909Validator(SCHEMA)
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
APP = ("migrate", "web", "beat", "worker-loop", "worker-work", "gateway")


def test_the_compose_file_follows_the_compose_schema() -> None:
    VALIDATOR.validate(COMPOSE)


@pytest.mark.parametrize(
    ("key", "value"), [("cap_dropp", ["ALL"]), ("restart", [1]), ("depends_on", {"x": {}})]
)
def test_the_schema_would_notice_a_mistake(key: str, value: object) -> None:
    broken = copy.deepcopy(COMPOSE)
    broken["services"]["gateway"][key] = value
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(broken)


def test_every_part_of_the_system_is_there() -> None:
    assert {"postgres", "valkey", *APP} == set(COMPOSE["services"])


@pytest.mark.parametrize("name", APP)
def test_our_containers_run_without_root_capabilities_or_a_writable_system(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["user"].split(":")[0] != "0"
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_stores_publish_no_port(name: str) -> None:
    assert "ports" not in COMPOSE["services"][name]


def test_the_gateway_depends_on_nothing_and_knows_no_database() -> None:
    gateway = COMPOSE["services"]["gateway"]
    assert "depends_on" not in gateway
    assert "DATABASE_URL" not in gateway["environment"]


def test_no_secret_has_a_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name in (
        "POSTGRES_PASSWORD",
        "VALKEY_PASSWORD",
        *re.findall(r"SLUICEGATE_\w*KEY\w*|SLUICEGATE_\w*PEPPER", text),
    ):
        assert not re.search(rf"\$\{{{name}:-", text), name


def test_named_modules_exist() -> None:
    for name in APP:
        words = COMPOSE["services"][name]["command"]
        if words[:2] == ["python", "-m"]:
            assert (ROOT / words[2] / "__main__.py").exists()
        if words[0] == "uvicorn":
            assert (ROOT / (words[1].split(":")[0].replace(".", "/") + ".py")).exists()


def test_volumes_that_are_used_are_declared() -> None:
    used = {v.split(":")[0] for s in COMPOSE["services"].values() for v in s.get("volumes", ())}
    assert used == set(COMPOSE["volumes"])


def test_the_image_copies_what_the_product_needs_and_runs_as_nobody() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) \w+$", text, re.MULTILINE))
    assert {"gateway", "control", "dashboard", "templates"} <= copied
    assert re.search(r"^USER (?!0)\d+$", text, re.MULTILINE)
