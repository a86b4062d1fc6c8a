"""`manage.py publish`: send the newest revision and the overrides in force now, and say what became of it."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control import environment, publishing
from control.audit import Actor
from control.publishing import Delivery
from control.services import generations
from control.store import StoreFault

ACTOR = Actor("publish", "command")


class Command(BaseCommand):
    """Publish by hand; `--force` after an old backup of the database was restored."""

    help = "Send the newest policy revision and the overrides in force to Valkey."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Flags."""
        parser.add_argument(
            "--force",
            action="store_true",
            help="begin a new generation: gateways take it although its number is lower",
        )

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401  # Django's own signature
        """Send, and fail where it did not arrive."""
        environment.demand_secrets()
        if options["force"]:
            try:
                generation = generations.begin(ACTOR)
            except StoreFault as fault:
                raise CommandError(f"REDIS_URL: Valkey can't be reached ({type(fault).__name__})") from None
            self.stdout.write(f"generation {generation}")
        results = publishing.republish_if_behind()
        for kind, delivery in results.items():
            self.stdout.write(f"{kind}: {delivery}")
        if Delivery.UNREACHABLE in results.values():
            raise CommandError("REDIS_URL: Valkey can't be reached; the loop sends it when it is back.")
        if Delivery.AHEAD in results.values():
            raise CommandError(
                "Valkey has something newer (a restored database?): publish --force replaces it."
            )
