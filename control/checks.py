"""Is this process fit to serve? Checks at the start, `/livez` and `/readyz` later, 503 while the database is away."""

import ipaddress
import sys
import time
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db.utils import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse

from control import environment, selectors, store
from gateway.contract import envelope, keys

_DATABASE_FAULTS = (OperationalError, InterfaceError)


@register(Tags.security, deploy=True)
def secrets_are_set(**_: object) -> list[CheckMessage]:
    """Each secret is there, long enough, and none that was ever printed in a manual."""
    return [
        Error(line, id="sluicegate.E001") for line in environment.secret_problems(environment.own_secrets())
    ]


@register(Tags.security)
def debug_stays_at_home(**_: object) -> list[CheckMessage]:
    """DEBUG shows traces and settings: only on this machine."""
    host = urlsplit(settings.PUBLIC_URL).hostname or ""
    if settings.DEBUG and not _is_loopback(host):
        return [Error("SLUICEGATE_DEBUG is on and SLUICEGATE_PUBLIC_URL is public.", id="sluicegate.E002")]
    return []


@register(Tags.compatibility)
def valkey_url_is_known(**_: object) -> list[CheckMessage]:
    """REDIS_URL is of a kind that we can use."""
    try:
        environment.broker(settings.REDIS_URL)
    except ImproperlyConfigured as error:
        return [Error(str(error), id="sluicegate.E003")]
    return []


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_to_start() -> None:
    """End the process with one line on stderr where a secret or the database is wrong. For servers; commands run checks.

    Raises:
        SystemExit: with code 2.
    """
    environment.demand_secrets()
    problems = [*debug_stays_at_home(), *valkey_url_is_known()]
    reason = problems[0].msg if problems else _database_problem()
    if reason is not None:
        sys.stderr.write(f"sluicegate: {reason}\n")
        raise SystemExit(2)


def _database_problem() -> str | None:
    try:
        pending = selectors.pending_migrations()
    except (DatabaseError, InterfaceError) as error:  # a file that is no database included
        return f"DATABASE_URL: the database can't be used: {str(error).splitlines()[0]}"
    return f"DATABASE_URL: {pending} migrations are missing: run manage.py migrate" if pending else None


async def livez(request: HttpRequest) -> HttpResponse:  # noqa: ARG001  # a view's signature
    """The process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:  # noqa: ARG001  # likewise
    """200 while the database answers; what else is away is told, not punished: the pages say so themselves."""
    try:
        revision: int | None = selectors.current_revision_number()
    except _DATABASE_FAULTS:
        revision = None
    frame_age_s = _frame_age_s()
    body = {
        "database": revision is not None,
        "revision": revision,
        "frame_age_s": None if frame_age_s is None else round(frame_age_s, 3),
        "degraded": revision is None or frame_age_s is None or frame_age_s > 3,  # seconds, as on pages
    }
    return JsonResponse(body, status=200 if revision is not None else 503)


def _frame_age_s() -> float | None:
    """Seconds since the slow loop's last frame; None where there is none or Valkey is away."""
    client = store.connect()
    try:
        head = client.getrange(keys.FRAME, 0, envelope.MAX_HEADER_BYTES)
        return time.time() - envelope.peek(head).sent_at if isinstance(head, bytes) and head else None
    except (*store.StoreFault, envelope.EnvelopeRefused):
        return None
    finally:
        client.close()


def server_error(request: HttpRequest) -> HttpResponse:  # noqa: ARG001  # likewise
    """500, or 503 where it was the database that failed. No trace, no internal names."""
    is_database = isinstance(sys.exc_info()[1], _DATABASE_FAULTS)
    status, text = (
        (503, "The database is away. The gateways go on serving; try again in a moment.\n")
        if is_database
        else (500, "Something went wrong here. It was logged.\n")
    )
    response = HttpResponse(text, content_type="text/plain; charset=utf-8", status=status)
    if is_database:
        response["Retry-After"] = "5"
    return response
