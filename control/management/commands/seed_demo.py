"""`manage.py seed_demo`: three tenants, three tiers, a pool, backends, an operator. May be run any number of times."""

import json
import os
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from control import environment
from control.audit import Actor
from control.services import ServiceRefused, demo
from control.services.records import together
from gateway.contract import keyring

ACTOR = Actor("seed_demo", "command")


class Command(BaseCommand):
    """Install the demo, keep its keys and the operator's password (readable by the owner only), print what is new."""

    help = (
        "Install demo tenants, tiers, a pool and backends; print and keep new keys (credentials.json, 0600)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Flags."""
        parser.add_argument("--pool", default="", help="name of the pool (default: the first model)")
        parser.add_argument(
            "--model", action="append", default=[], help="served model name; first: the backends' own"
        )
        parser.add_argument(
            "--backend",
            action="append",
            default=[],
            metavar="NAME=URL,ENGINE[,SEATS]",
            help="may be given again",
        )
        parser.add_argument(
            "--retry-after-max", type=int, default=None, metavar="S", help="caps Retry-After, 1 to 60 s"
        )
        parser.add_argument(
            "--cpu-engine", action="store_true", help="objectives that an engine without a GPU can meet"
        )

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401  # Django's own signature
        """Do it, all or nothing."""
        environment.demand_secrets()
        models = tuple(options["model"]) or ("demo-chat",)
        wanted = demo.Demo(
            pool=options["pool"] or models[0],
            models=models,
            backends=tuple(_parse_backend(text) for text in options["backend"]),
            retry_after_max_s=options["retry_after_max"],
            has_cpu_engine=options["cpu_engine"],
        )
        kept = _Credentials(Path(settings.STATE_DIR) / "credentials.json")
        try:
            with together():
                made = demo.install_demo(ACTOR, wanted, kept.has_key_of)
                password = demo.install_operator(ACTOR)
                if password is None and not kept.password:
                    password = demo.replace_operator_password(ACTOR)
                kept.add(made, password)
                kept.save()
        except ServiceRefused as refusal:
            raise CommandError(str(refusal)) from None
        for key in made:
            self.stdout.write(f"{key.tier} {key.tenant}: {key.key}")
        if password is not None:
            self.stdout.write(f"{demo.OPERATOR}: {password}")


def _parse_backend(text: str) -> demo.DemoBackend:
    name, _, rest = text.partition("=")
    url, *words = rest.split(",")
    engine, seats = words[0] if words else "", words[1] if len(words) > 1 else ""
    if not (name and url and engine) or len(words) > 2 or (seats and not seats.isdecimal()):
        raise CommandError(
            f"--backend {text!r}: expected NAME=URL,ENGINE or NAME=URL,ENGINE,SEATS, "
            "such as b1=http://127.0.0.1:9101,vllm"
        )
    return demo.DemoBackend(name=name, url=url, engine=engine, max_seqs=int(seats) if seats else None)


class _Credentials:
    """What people need to sign in and call, kept for the next start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        content = _read(path)
        self.password: str = content.get("operator", {}).get("password", "")
        self._keys: list[dict[str, str]] = [
            row for row in content.get("keys", []) if keyring.public_id_of(row.get("key", ""))
        ]

    def has_key_of(self, tenant: str) -> bool:
        return any(row.get("tenant") == tenant for row in self._keys)

    def add(self, made: tuple[demo.DemoKey, ...], password: str | None) -> None:
        fresh = {key.tenant for key in made}
        self._keys = [row for row in self._keys if row.get("tenant") not in fresh]
        self._keys += [{"tier": key.tier, "tenant": key.tenant, "key": key.key} for key in made]
        self._keys.sort(key=lambda row: row["tier"])
        self.password = password or self.password

    def save(self) -> None:
        """Whole or not at all, readable by the owner only."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"operator": {"username": demo.OPERATOR, "password": self.password}, "keys": self._keys}
        handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".credentials.")
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(self._path)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
