"""Overrides: the dialog on a backend's card, and undo."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from control import selectors
from control.services import Actor, Conflict, Invalid, NotFound
from control.services.overrides import SetOverride, release_override, set_override
from dashboard.forms import AUTO, OPEN, BreakerOverrideForm
from dashboard.panels.backends import breaker
from dashboard.panels.chrome import override_title
from dashboard.panels.effects import Effect, effects
from dashboard.panels.scene import Scene
from dashboard.panels.wording import stamp
from dashboard.views.page import Page, refused, viewer_page
from gateway.core.vocabulary import OverrideKind

_FIELDS = {"reason": "reason", "lifetime_s": "lifetime"}


@require_http_methods(["GET", "HEAD", "POST"])
@viewer_page
def backend_override(request: HttpRequest, page: Page, name: str) -> HttpResponse:
    """GET: the dialog with its preview. POST: set it or give the breaker back; errors stand at their fields."""
    if not page.access.may_override:
        return refused(request, page.access)
    if not any(b.name == name for b in selectors.backends()):
        raise Http404(_("There is no backend %(name)s.") % {"name": name})
    form = BreakerOverrideForm(request.POST or None, initial={"action": OPEN, "lifetime": "15m"})
    if request.method == "POST" and form.is_valid():
        answer = _apply(request, page, form, name)
        if answer is not None:
            return answer
    status = 409 if getattr(form, "is_conflict", False) else 422 if form.is_bound else 200
    return render(request, _template(request), _context(request, page, form, name), status=status)


@require_POST
@viewer_page
def override_release(request: HttpRequest, page: Page, key: str) -> HttpResponse:
    """Undo with one click. One that has ended already is no fault."""
    if not page.access.may_override:
        return refused(request, page.access)
    row = selectors.override(key)
    try:
        was_in_force = release_override(
            Actor(page.access.username, "dashboard"), key, reason=_("undone on the page")
        )
    except NotFound:
        raise Http404(_("There is no such override.")) from None
    title = override_title(row.kind, row.target, row.value) if row else key
    words = _("Undone: %(what)s.") if was_in_force else _("It had ended already: %(what)s.")
    return _done(request, words % {"what": title})


def _apply(request: HttpRequest, page: Page, form: BreakerOverrideForm, name: str) -> HttpResponse | None:
    """Call the service. None where it refused: the form says why, and nothing was changed."""
    actor = Actor(page.access.username, "dashboard")
    action, expected = form.cleaned_data["action"], form.cleaned_data["expected"] or None
    if action == AUTO:
        return _give_back(request, actor, form, name)
    wanted = SetOverride(
        kind=OverrideKind.BREAKER,
        target=name,
        value=action,
        reason=form.cleaned_data["reason"],
        lifetime_s=form.lifetime_s,
        expected=expected,
    )
    try:
        done = set_override(actor, wanted)
    except Invalid as refusal:
        for problem in refusal.problems:
            form.add_error(_FIELDS.get(problem.field), problem.message)
        return None
    except Conflict:
        _conflict(form, name)
        return None
    words = {
        "what": override_title(OverrideKind.BREAKER, name, action),
        "until": stamp(done.expires_at.timestamp()),
    }
    return _done(request, _("Set: %(what)s until %(until)s.") % words, undo=done.key)


def _give_back(
    request: HttpRequest, actor: Actor, form: BreakerOverrideForm, name: str
) -> HttpResponse | None:
    present, expected = in_force(name), form.cleaned_data["expected"]
    if present is None:
        return _done(
            request, _("No override of %(name)s is in force: its breaker decides by itself.") % {"name": name}
        )
    if present.key != expected:
        _conflict(form, name)
        return None
    release_override(actor, present.key, reason=form.cleaned_data["reason"])
    return _done(request, _("The breaker of %(name)s decides by itself again.") % {"name": name})


def _conflict(form: BreakerOverrideForm, name: str) -> None:
    """Say what is in force now, and let the next attempt be about that."""
    present = in_force(name)
    if present is None:
        words = _(
            "Meanwhile the override that you saw has ended. Look at the effect again, then press once more."
        )
    else:
        values = {
            "what": override_title(present.kind, present.target, present.value),
            "actor": present.actor,
            "until": stamp(present.expires_at.timestamp()),
            "reason": present.reason,
        }
        words = (
            _(
                "Meanwhile %(actor)s set: %(what)s until %(until)s (%(reason)s). Press once more to replace it."
            )
            % values
        )
    form.add_error(None, words)
    form.is_conflict = True  # type: ignore[attr-defined]  # a note to the view about this one answer
    form.data = {**form.data.dict(), "expected": present.key if present else ""}  # type: ignore[attr-defined]  # a QueryDict


def in_force(name: str) -> selectors.OverrideRow | None:
    """The breaker override of a backend that is in force now, by the tables."""
    rows = selectors.overrides_in_force()
    return next((row for row in rows if row.kind == OverrideKind.BREAKER and row.target == name), None)


def _context(request: HttpRequest, page: Page, form: BreakerOverrideForm, name: str) -> dict[str, Any]:
    present = in_force(name)
    recent = page.recent
    previews: tuple[Effect, ...] = ()
    state = None
    if recent is not None:
        previews = effects(Scene(recent.frame, recent.samples, recent.events, page.now), name)
        state = next((breaker(b.breaker) for b in recent.frame.backends if b.backend == name), None)
    return page.shell("overview") | {
        "name": name,
        "form": form,
        "effects": previews,
        "breaker": state,
        "present": present,
        "present_title": override_title(present.kind, present.target, present.value) if present else "",
        "expected": form.data.get("expected", "") if form.is_bound else (present.key if present else ""),
        "action": form["action"].value() or OPEN,
        "lifetime": form["lifetime"].value() or "15m",
        "next": _next(request),
    }


def _template(request: HttpRequest) -> str:
    return "dashboard/override_form.html" if _is_partial(request) else "dashboard/override.html"


def _is_partial(request: HttpRequest) -> bool:
    return request.headers.get("X-Requested-With") == "dialog"


def _next(request: HttpRequest) -> str:
    asked = request.POST.get("next") or request.GET.get("next") or ""
    if url_has_allowed_host_and_scheme(asked, {request.get_host()}, require_https=request.is_secure()):
        return asked
    return reverse("dashboard:overview")


def _done(request: HttpRequest, words: str, undo: str = "") -> HttpResponse:
    """The page's script shows the words itself; without it they wait for the next page."""
    if _is_partial(request):
        return JsonResponse(
            {"words": words, "undo": reverse("dashboard:override-release", args=[undo]) if undo else ""}
        )
    messages.success(request, words)
    return redirect(_next(request))
