"""Forms: what an operator may enter, and in which words a field is refused. Services check again."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

OPEN, CLOSED, AUTO = "open", "closed", "auto"
LIFETIMES_S = {"15m": 900, "1h": 3600, "4h": 14_400}
OTHER = "other"
MAX_MINUTES = 24 * 60
MIN_REASON, MAX_REASON = 8, 200


class BreakerOverrideForm(forms.Form):
    """Force a backend's breaker open or closed for a while, or give it back to automatic.

    `expected` is the key of the override that was in force when the form was shown, empty for none.
    """

    action = forms.ChoiceField(
        choices=((OPEN, _("Force open")), (CLOSED, _("Force closed")), (AUTO, _("Auto"))),
        error_messages={"required": _("Choose an action."), "invalid_choice": _("There is no such action.")},
    )
    lifetime = forms.ChoiceField(
        required=False,
        choices=(("15m", "15 min"), ("1h", "1 h"), ("4h", "4 h"), (OTHER, _("Other"))),
        error_messages={"invalid_choice": _("Choose when it ends: 15 min, 1 h, 4 h or other.")},
    )
    minutes = forms.IntegerField(
        required=False, error_messages={"invalid": _("Enter a whole number of minutes.")}
    )
    reason = forms.CharField(
        required=False,
        max_length=MAX_REASON,
        error_messages={
            "max_length": ngettext_lazy(
                "At most %(limit_value)d character; these are %(show_value)d.",
                "At most %(limit_value)d characters; these are %(show_value)d.",
                "limit_value",
            )
        },
    )
    expected = forms.CharField(required=False, max_length=24, widget=forms.HiddenInput)

    def clean_reason(self) -> str:
        """Needed for everything but the return to automatic."""
        reason: str = self.cleaned_data["reason"]
        if self.cleaned_data.get("action") != AUTO and len(reason) < MIN_REASON:
            raise forms.ValidationError(
                _("Say why, in at least %(n)s characters: it goes to the audit log.") % {"n": MIN_REASON}
            )
        return reason

    def clean(self) -> dict[str, Any]:
        """An end is needed: one of the three, or minutes up to a day."""
        cleaned = super().clean() or {}
        if cleaned.get("action") == AUTO or self.errors.get("lifetime") or self.errors.get("minutes"):
            return cleaned
        lifetime, minutes = cleaned.get("lifetime"), cleaned.get("minutes")
        if not lifetime:
            self.add_error("lifetime", _("Choose when it ends: 15 min, 1 h, 4 h or other."))
        elif lifetime == OTHER and minutes is None:
            self.add_error("minutes", _("Enter after how many minutes it ends."))
        elif lifetime == OTHER and not 1 <= (minutes or 0) <= MAX_MINUTES:
            self.add_error(
                "minutes",
                _("1 to %(most)s minutes: no override lasts longer than a day.") % {"most": MAX_MINUTES},
            )
        return cleaned

    @property
    def lifetime_s(self) -> int:
        """How long it lasts, in seconds. Only of a valid form."""
        lifetime = self.cleaned_data["lifetime"]
        return LIFETIMES_S.get(lifetime) or int(self.cleaned_data["minutes"]) * 60
