"""What the JSON columns may hold; each validator says what is wrong in one sentence."""

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

MAX_MODELS = 100
MAX_MODEL_CHARS = 200
MAX_MESSAGE_CHARS = 1000


def is_model_names(value: object) -> None:
    """A list of different model names, at least one, without spaces."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MODELS:
        raise ValidationError(_("A list of model names, at least one."))
    if not all(
        isinstance(name, str) and name and len(name) <= MAX_MODEL_CHARS and name.split() == [name]
        for name in value
    ):
        raise ValidationError(_("A model name is text without spaces."))
    if len(set(value)) != len(value):
        raise ValidationError(_("A model name is there twice."))


def is_ranks(value: object) -> None:
    """A list of different tier ranks."""
    if not isinstance(value, list) or not all(
        isinstance(rank, int) and not isinstance(rank, bool) for rank in value
    ):
        raise ValidationError(_("A list of tier ranks, such as [0, 1]."))
    if len(set(value)) != len(value) or not all(0 <= rank <= 9 for rank in value):
        raise ValidationError(_("Different ranks, 0 to 9."))


def is_messages(value: object) -> None:
    """Text by language."""
    if not isinstance(value, dict):
        raise ValidationError(_('An object, such as {"en": "Too busy."}.'))
    for language, text in value.items():
        if language not in ("en", "zh"):
            raise ValidationError(_("Languages are en and zh."))
        if not isinstance(text, str) or not text or len(text) > MAX_MESSAGE_CHARS:
            raise ValidationError(_("A message is text of 1 to 1000 characters."))
