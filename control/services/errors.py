"""What a service answers where it changes nothing."""

from collections.abc import Iterable

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError

from gateway.core.policy import Problem


class ServiceRefused(Exception):  # noqa: N818  # named for what happened
    """Nothing was changed; the text says why."""


class Invalid(ServiceRefused):
    """The input is wrong; `problems` names each field. For HTTP: 422 or the form again."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "; ".join(f"{p.field}: {p.message}" if p.field else p.message for p in self.problems)
        )

    @classmethod
    def of(cls, field: str, message: str) -> "Invalid":
        """One problem."""
        return cls((Problem(field, message),))

    @classmethod
    def from_django(cls, error: ValidationError) -> "Invalid":
        """Django's words, field by field."""
        if not hasattr(error, "error_dict"):
            return cls(Problem("", message) for message in error.messages)
        return cls(
            Problem("" if field == NON_FIELD_ERRORS else field, message)
            for field, messages in error.message_dict.items()
            for message in messages
        )


class Conflict(ServiceRefused):
    """Somebody else was quicker, or something still uses it. For HTTP: 409. `current` is the key of what is there now."""

    def __init__(self, message: str, current: str | None = None) -> None:
        super().__init__(message)
        self.current = current


class NotFound(ServiceRefused):
    """There is no such thing. For HTTP: 404."""
