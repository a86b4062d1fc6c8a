"""Forms that say, before anything is saved, every reason for which the policy would be refused."""

import re
from typing import Any

from django import forms
from django.db import models
from django.utils.translation import gettext_lazy as _

from control.models import Grant, Pool, QueuePolicy
from control.services import records
from gateway.core.policy import Problem

_NAME = re.compile(r"\[[^]]*\]")
_ALIASES = {"models": "models_served"}


class PolicyForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's form classes are generic for type checkers alone
    """A form whose row is rehearsed: what core and contract object to stands beside its field."""

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # private in the stubs, documented as the hook it is
        if not self.errors and self.has_changed():
            seen: set[tuple[str | None, str]] = set()
            for problem in records.rehearse(self.instance):
                field = _form_field(problem, self.fields) if _is_about(problem, self.instance) else None
                place = (field, _sentence(problem))
                if place not in seen:
                    seen.add(place)
                    self.add_error(*place)


def _is_about(problem: Problem, row: models.Model) -> bool:
    """Whether a problem lies in this very row; otherwise it is told above the form, with its full place."""
    if isinstance(row, QueuePolicy):
        return ".queue." in problem.field
    match = _NAME.search(problem.field)
    name = f"{row.tenant.name}/{row.pool.name}" if isinstance(row, Grant) else getattr(row, "name", "")
    return match is not None and match[0] == f"[{name}]"


def _form_field(problem: Problem, fields: dict[str, forms.Field]) -> str | None:
    """The field of the form that a policy's field belongs to: `breaker.open_s` is `breaker_open_s`, None: the whole."""
    words = _NAME.sub("", problem.field).split(".")
    for name in ("_".join(words[-2:]), words[-1], _ALIASES.get(words[-1], "")):
        if name in fields:
            return name
    return None


def _sentence(problem: Problem) -> str:
    return f"{problem.field}: {problem.message}"


class WordsField(forms.CharField):
    """Words, separated by commas or spaces, as a list."""

    def to_python(self, value: Any) -> Any:  # noqa: ANN401  # Django's own signature
        """Text to words."""
        text = super().to_python(value)
        return (text or "").replace(",", " ").split()

    def prepare_value(self, value: Any) -> Any:  # noqa: ANN401  # Django's own signature
        """Words to text."""
        return ", ".join(str(word) for word in value) if isinstance(value, list) else value


class RanksField(WordsField):
    """Tier ranks, separated by commas."""

    def to_python(self, value: Any) -> Any:  # noqa: ANN401  # Django's own signature
        """Text to numbers; P0 is as good as 0."""
        words = [word.upper().removeprefix("P") for word in super().to_python(value)]
        if not all(word.isascii() and word.isdigit() for word in words):
            raise forms.ValidationError(_("Tier ranks, such as 0, 1."))
        return [int(word) for word in words]


class PoolForm(PolicyForm):
    """A pool; lists are typed as words."""

    models_served = WordsField(
        label=_("model names"),
        help_text=_("What callers may ask for. The first is what the backends call it, others are aliases."),
    )
    fallback_tiers = RanksField(
        label=_("fallback tiers"),
        required=False,
        help_text=_("Ranks that may have the fallback, such as 0, 1."),
    )

    class Meta:
        """Everything."""

        model: type[models.Model] = Pool
        exclude = ()  # noqa: DJ006  # everything; the page names the fields
