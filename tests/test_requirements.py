"""pyproject.toml, the .in files and the lock files say the same; every locked file has a hash."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Needed to install the project itself, without the network: no part of it at run time.
BUILD = {"hatchling", "editables"}


def name(requirement: str) -> str:
    """A requirement without its version and extras, as indexes spell it."""
    return re.split(r"[\[<>=~!; ]", requirement.strip())[0].lower().replace("_", "-")


def wanted(file: str) -> set[str]:
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    return {name(line) for line in lines if line.strip() and not line.startswith(("#", "-"))}


def locked(file: str) -> dict[str, str]:
    text = (ROOT / "requirements" / file).read_text().replace("\\\n", " ")
    return {name(line): line for line in text.splitlines() if line.strip() and not line.startswith("#")}


def test_python_and_django_are_bounded_as_promised() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    assert "Django>=5.2.19,<6" in PROJECT["dependencies"]


def test_the_extras_are_there() -> None:
    assert set(PROJECT["optional-dependencies"]) == {"postgres", "ha", "sso", "dev"}


def test_what_the_product_needs_is_the_same_in_both_places() -> None:
    extras = PROJECT["optional-dependencies"]
    told = {name(each) for each in (*PROJECT["dependencies"], *extras["postgres"])}
    assert wanted("runtime.in") == told | BUILD


def test_what_tests_need_is_the_same_in_both_places() -> None:
    extras = PROJECT["optional-dependencies"]
    told = {name(each) for extra in ("dev", "ha", "sso") for each in extras[extra]}
    assert wanted("dev.in") | BUILD == told | BUILD


@pytest.mark.parametrize("lock", ["runtime.lock", "dev.lock"])
def test_every_lock_has_hashes_and_all_that_is_wanted(lock: str) -> None:
    found = locked(lock)
    assert wanted("runtime.in") <= set(found)
    assert lock == "runtime.lock" or wanted("dev.in") <= set(found)
    assert not [line for line in found.values() if "==" not in line or "--hash=sha256:" not in line]


def test_both_locks_agree_on_versions() -> None:
    runtime, dev = locked("runtime.lock"), locked("dev.lock")
    pins = {each: re.search(r"==(\S+)", line)[1] for each, line in runtime.items()}  # type: ignore[index]
    assert {each: re.search(r"==(\S+)", dev[each])[1] for each in pins} == pins  # type: ignore[index]
