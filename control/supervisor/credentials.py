"""What `seed_demo` left for people to sign in and call with: an operator and one key per tier."""

import json
from dataclasses import dataclass
from pathlib import Path

from control.supervisor.state import StartRefused


@dataclass(frozen=True, slots=True)
class DemoKey:
    """A demo tenant's key."""

    tier: str
    tenant: str
    key: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """Sign-in of the operator, and the demo keys by tier."""

    username: str
    password: str
    keys: tuple[DemoKey, ...]


def read_credentials(state: Path) -> Credentials:
    """Read `credentials.json`.

    Raises:
        StartRefused: it is missing or not what `seed_demo` writes.
    """
    path = state / "credentials.json"
    try:
        content = json.loads(path.read_text())
        operator = content["operator"]
        keys = tuple(DemoKey(row["tier"], row["tenant"], row["key"]) for row in content["keys"])
        return Credentials(operator["username"], operator["password"], keys)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartRefused(
            f"{path}: {error!r}. Remove it: new demo keys are made at the next start."
        ) from None
