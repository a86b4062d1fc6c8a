"""Credential references of backends, `env:NAME` or `file:/path`, resolved here and nowhere else.

A snapshot only ever holds the reference, so that neither Valkey, the database nor a file on disk holds the secret.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from gateway.contract.snapshot import BackendSpec

log = logging.getLogger("sluicegate.credentials")


def resolve(reference: str) -> str | None:
    """The secret behind a reference; None where there is none to be had."""
    scheme, _, place = reference.partition(":")
    if scheme == "env":
        return os.environ.get(place, "").strip() or None
    try:
        return Path(place).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def resolve_all(backends: Iterable[BackendSpec]) -> dict[str, str]:
    """Credentials by backend name. One that cannot be resolved is left out and said, by reference."""
    found: dict[str, str] = {}
    for backend in backends:
        if backend.credential is None:
            continue
        secret = resolve(backend.credential)
        if secret is None:
            log.warning("backend %s: %s holds no credential", backend.policy.name, backend.credential)
        else:
            found[backend.policy.name] = secret
    return found
