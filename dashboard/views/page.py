"""Page: what every page needs. Somebody who may see the control room, the newest frame, and the shell around it."""

import functools
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

from asgiref.sync import sync_to_async
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse

from control import selectors
from control.selectors import Access
from dashboard.panels.chrome import chrome
from dashboard.panels.scene import STALE_AFTER_S
from dashboard.panels.wording import duration, stamp
from dashboard.stream.history import Recent
from dashboard.stream.hub import Hub, Source, current_hub

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Page:
    """Who looks, and at what. `recent` is None before the first frame; `source` says whether Valkey answers."""

    access: Access
    recent: Recent | None
    source: Source
    now: float

    def shell(self, here: str) -> dict[str, Any]:
        """What base.html prints around a page's own part."""
        frame = self.recent.frame if self.recent else None
        age_s = max(0.0, self.now - frame.at) if frame else None
        return {
            "here": here,
            "access": self.access,
            "frame_at": frame.at if frame else None,
            "as_of": stamp(frame.at) if frame else "",
            "age_s": age_s,
            "lost": duration(age_s) if age_s is not None and age_s > STALE_AFTER_S else "",
            "now": self.now,
            "is_up": self.source.is_up,
            "down_since": stamp(frame.at if frame else self.source.since),
            "chrome": chrome(frame, self.now) if frame else None,
        }


async def access_of(request: HttpRequest) -> Access:
    """What the user of a request may do."""
    user = await request.auser()
    return await sync_to_async(selectors.access_of)(user)


def viewer_page(
    view: Callable[Concatenate[HttpRequest, Page, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], Coroutine[Any, Any, HttpResponseBase]]:
    """A page for people with a staff role: others are asked to sign in, or told that they may not see it."""

    async def wrapped(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        access = await access_of(request)
        if not access.username:
            return redirect_to_login(request.get_full_path(), reverse("dashboard:sign-in"))
        if not access.may_view:
            return await sync_to_async(refused)(request, access)
        hub: Hub = current_hub()
        await hub.ready()
        page = Page(access, hub.recent, hub.source, time.time())
        return await sync_to_async(view)(request, page, *args, **kwargs)

    functools.update_wrapper(wrapped, view)
    return wrapped


def refused(request: HttpRequest, access: Access) -> HttpResponse:
    """403 in words: signed in, but without the role."""
    return render(request, "dashboard/refused.html", {"access": access}, status=403)
