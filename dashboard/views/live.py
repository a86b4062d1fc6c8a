"""Live: the stream of one page. Who may have it is asked again every few seconds, not only at the start."""

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib import auth
from django.contrib.sessions.backends.base import SessionBase
from django.db import DatabaseError, connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import get_language, override

from control import selectors
from dashboard.stream.hub import Hub, current_hub
from dashboard.stream.relay import StreamPolicy, TooManyStreams, Viewer, admit, relay
from dashboard.stream.shutdown import watch_signals
from dashboard.views.overview import ORDERS, chosen_pool, live_part, live_shell, pool_names
from dashboard.views.page import access_of


async def live(request: HttpRequest) -> HttpResponseBase:
    """Server-sent events for one page: 401 and 403 without the role, 429 beyond so many streams per user."""
    access = await access_of(request)
    if not access.may_view:
        return HttpResponse(status=403 if access.username else 401, content_type="text/plain")
    hub = current_hub()
    policy: StreamPolicy = getattr(settings, "DASHBOARD_STREAM", StreamPolicy())
    viewer = _viewer(request, hub, access.username)
    try:
        place = admit(hub, viewer, policy)
    except TooManyStreams:
        return HttpResponse(f"{policy.per_user}", status=429, content_type="text/plain")
    await hub.ready()
    watch_signals(hub)
    # The thread that answered this request keeps its database connection until the stream ends: give it back now.
    await sync_to_async(connections.close_all)()
    response = StreamingHttpResponse(relay(hub, viewer, policy, place), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def _viewer(request: HttpRequest, hub: Hub, username: str) -> Viewer:
    asked_pool, asked_by = request.GET.get("pool", ""), request.GET.get("by", "")
    by = asked_by if asked_by in ORDERS else ORDERS[0]
    is_overview = request.GET.get("page", "overview") == "overview"
    language = get_language() or settings.LANGUAGE_CODE
    session_key = request.session.session_key or ""

    def page() -> bytes:
        recent = hub.recent
        if recent is None:
            return b""
        with override(language):
            if not is_overview:
                return live_shell(recent)
            return live_part(recent, chosen_pool(asked_pool, pool_names(recent)), by)

    async def may_go_on() -> bool:
        return await sync_to_async(_may_still_view, thread_sensitive=False)(
            type(request.session), session_key
        )

    key = ("overview", asked_pool, by, language) if is_overview else ("shell", language)
    return Viewer(username, may_go_on, key, page)


def _may_still_view(store: type[SessionBase], session_key: str) -> bool:
    """The session is still there, belongs to somebody active, and the role is still held.

    While the database is away nobody can be asked; the live page is what is needed then, so it goes on.
    """
    request = HttpRequest()
    request.session = store(session_key)
    try:
        return selectors.access_of(auth.get_user(request)).may_view
    except DatabaseError:
        return True
    finally:
        connections.close_all()
