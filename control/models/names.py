"""How things are named: small letters, digits, dash, underscore and dot; names are metric labels and parts of keys."""

from typing import Any

from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_is_name = RegexValidator(
    NAME_PATTERN,
    _("1 to 63 small letters, digits, dots, dashes or underscores, starting with a letter or digit."),
)


def name_field(**options: Any) -> "models.CharField[str, str]":  # noqa: ANN401  # passed on to Django
    """The unique name of a thing."""
    return models.CharField(_("name"), max_length=63, unique=True, validators=[_is_name], **options)
