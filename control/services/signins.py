"""Sign-ins and lockouts leave an audit row too. Loaded by the app's `ready`.

A failed attempt alone leaves none: the lockout bounds it, and nobody must be able to grow the log at will.
"""

from axes.signals import user_locked_out
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from control.audit import Actor, change

_ANONYMOUS = "anonymous"
_MAX_NAME = 150


@receiver(user_logged_in, dispatch_uid="sluicegate-signed-in")
def signed_in(sender: object, user: User, request: HttpRequest | None = None, **_: object) -> None:  # noqa: ARG001  # a signal's signature
    """Somebody signed in."""
    with change(Actor(user.get_username(), "web"), "signed in") as entry:
        entry.about(user)


@receiver(user_locked_out, dispatch_uid="sluicegate-locked-out")
def locked_out(sender: object, username: str = "", ip_address: str = "", **_: object) -> None:  # noqa: ARG001  # likewise
    """Too many wrong passwords."""
    with change(Actor(_ANONYMOUS, "web"), "locked out") as entry:
        entry.object_type, entry.object_name = "user", (username or "")[:_MAX_NAME]
        entry.note("address", before=None, after=ip_address)
