"""`manage.py audit_verify`: is the audit log what was written? Exit code 1 and the first bad number where it is not."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control import audit


class Command(BaseCommand):
    """Walk the chain."""

    help = "Verify the audit log's chain, against an anchor that was kept elsewhere where one is given."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Flags."""
        parser.add_argument(
            "--anchor", default="", metavar="NUMBER:DIGEST", help="what --print-anchor printed earlier"
        )
        parser.add_argument(
            "--print-anchor", action="store_true", help="print the end of the chain, to be kept elsewhere"
        )

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401  # Django's own signature
        """Verify, then print."""
        try:
            kept = audit.Anchor.parse(options["anchor"]) if options["anchor"] else None
        except ValueError as error:
            raise CommandError(f"--anchor: {error}") from None
        fault = audit.verify(kept)
        if fault is not None:
            raise CommandError(f"audit event {fault.seq} {fault.message}")
        end = audit.anchor()
        self.stdout.write(
            str(end) if options["print_anchor"] else f"{end.seq} audit events, the chain is whole"
        )
