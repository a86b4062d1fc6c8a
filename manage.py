#!/usr/bin/env python
"""Django's command line, with one clear line instead of a trace where the configuration or the database is wrong."""

import os
import sys


def main() -> int:
    """Run the command; returns the exit code."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415  # after the settings are named
    from django.core.management import execute_from_command_line  # noqa: PLC0415  # likewise
    from django.db.utils import DatabaseError, OperationalError  # noqa: PLC0415  # likewise

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        return _refuse(str(error))
    except DatabaseError as error:
        if type(error) not in (OperationalError, DatabaseError):  # it answers: what is wrong is the command
            raise
        return _refuse(f"DATABASE_URL: the database can't be used: {str(error).splitlines()[0]}")
    return 0


def _refuse(reason: str) -> int:
    sys.stderr.write(f"sluicegate: {reason}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
