"""`manage.py override`: set or release an override from a shell, for when the pages can't be reached."""

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control import environment, selectors
from control.audit import Actor
from control.services import ServiceRefused, overrides
from gateway.core.vocabulary import OverrideKind


class Command(BaseCommand):
    """The same service, the same checks and the same audit row as on the pages."""

    help = (
        "Set an override for a while: --kind breaker --target BACKEND --value open --reason WHY --seconds 900. "
        "--release KEY ends one; without flags, those in force are listed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Flags."""
        parser.add_argument("--kind", choices=[kind.value for kind in OverrideKind])
        parser.add_argument("--target", help="backend, tenant, pool or tier rank, by kind")
        parser.add_argument("--value", default="on", help="open or closed; a number; on (the default)")
        parser.add_argument("--reason", default="", help="why: it goes to the audit log")
        parser.add_argument("--seconds", type=int, default=900, help="when it ends by itself (default 900)")
        parser.add_argument("--release", metavar="KEY", help="end this override now")

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401  # Django's own signature
        """Release, set, or list."""
        environment.demand_secrets()
        actor = Actor(getpass.getuser(), "command")
        try:
            if options["release"]:
                self._release(actor, options)
            elif options["kind"]:
                self._set(actor, options)
            else:
                self._list()
        except ServiceRefused as refusal:
            raise CommandError(str(refusal)) from None

    def _release(self, actor: Actor, options: dict[str, Any]) -> None:
        was_in_force = overrides.release_override(actor, options["release"], reason=options["reason"])
        self.stdout.write("released" if was_in_force else "it had ended already")

    def _set(self, actor: Actor, options: dict[str, Any]) -> None:
        wanted = overrides.SetOverride(
            kind=OverrideKind(options["kind"]),
            target=options["target"] or "",
            value=options["value"],
            reason=options["reason"],
            lifetime_s=options["seconds"],
        )
        made = overrides.set_override(actor, wanted)
        self.stdout.write(f"{made.key} until {made.expires_at:%H:%M:%S} UTC")

    def _list(self) -> None:
        rows = selectors.overrides_in_force()
        for row in rows:
            self.stdout.write(
                f"{row.key}  {row.kind} {row.value} on {row.target} until {row.expires_at:%H:%M:%S} UTC, "
                f"{row.actor}: {row.reason}"
            )
        if not rows:
            self.stdout.write("no override is in force")
