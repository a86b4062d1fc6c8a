import asyncio
import gc
import time

import msgspec
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.test import AsyncClient

from control.audit import Actor
from control.models import Membership
from control.services import records
from dashboard.stream.hub import current_hub
from dashboard.stream.relay import StreamPolicy
from tests.dashboard.stream.test_relay import kinds, parsed
from tests.fakes import installation
from tests.fakes.frames import frame_at, publish

pytestmark = [pytest.mark.loop, pytest.mark.anyio, pytest.mark.django_db(transaction=True)]

QUICK = StreamPolicy(lifetime_s=30.0, recheck_s=0.05, idle_s=0.02, per_user=2)


@pytest.fixture
async def people():
    def hire():
        installation.hire("vera", "viewer")
        installation.hire("tina", "viewer")

    await sync_to_async(hire)()


@pytest.fixture
async def sign_in(people, settings):
    settings.DASHBOARD_STREAM = QUICK
    clients = []

    async def signed_in(username):
        client = AsyncClient()
        user = await get_user_model().objects.aget(username=username)
        await client.aforce_login(user, backend="django.contrib.auth.backends.ModelBackend")
        clients.append(client)
        return client

    yield signed_in
    hub = current_hub()
    hub.close()
    if hub._task is not None:
        await asyncio.wait_for(hub._task, 2)


async def take(answer, until, within_s=8.0):
    chunks = []
    stream = aiter(answer.streaming_content)
    async with asyncio.timeout(within_s):
        async for chunk in stream:
            chunks.append(chunk)
            if until(parsed(chunks)):
                break
    await stream.aclose()
    return parsed(chunks)


async def test_nobody_gets_a_stream_without_signing_in(valkey, db):
    assert (await AsyncClient().get("/live/")).status_code == 401


async def test_a_viewer_gets_frames_unchanged_and_their_page(valkey, sign_in):
    told = frame_at(540.0, time.time())
    publish(valkey, told)
    answer = await (await sign_in("vera")).get("/live/?pool=chat-70b&by=use&page=overview")
    assert (answer.status_code, answer["Content-Type"], answer["Cache-Control"]) == (
        200,
        "text/event-stream",
        "no-store",
    )
    found = await take(answer, lambda f: "page" in kinds(f))
    assert next(data for kind, _, data in found if kind == "frame").encode() == msgspec.json.encode(told)
    page = next(data for kind, _, data in found if kind == "page")
    assert 'id="verdict"' in page
    assert "Share of use" in page


async def test_other_pages_get_the_shell_only(valkey, sign_in):
    publish(valkey, frame_at(540.0, time.time()))
    answer = await (await sign_in("vera")).get("/live/?page=shell")
    page = (await take(answer, lambda f: "page" in kinds(f)))[-1][2]
    assert 'id="overrides"' in page
    assert 'id="verdict"' not in page


async def test_beyond_so_many_streams_a_user_is_refused_and_others_are_not(valkey, sign_in):
    vera, tina = await sign_in("vera"), await sign_in("tina")
    held = [await vera.get("/live/") for _ in range(QUICK.per_user)]
    assert (await vera.get("/live/")).status_code == 429
    assert (await tina.get("/live/")).status_code == 200
    await take(held.pop(), bool)
    async with asyncio.timeout(10):
        while (await vera.get("/live/")).status_code != 200:  # the place comes back with the garbage
            gc.collect()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("how", ["session", "role", "account"])
async def test_a_stream_ends_when_session_role_or_account_is_taken_away(valkey, sign_in, how):
    vera = await sign_in("vera")
    answer = await vera.get("/live/")

    def take_away():
        if how == "session":
            vera.session.flush()
        elif how == "role":
            _dismiss("vera")
        else:
            get_user_model().objects.filter(username="vera").update(is_active=False)

    reading = asyncio.create_task(take(answer, lambda f: "bye" in kinds(f)))
    await asyncio.sleep(0.2)
    assert not reading.done(), "it goes on while nothing is wrong"
    await sync_to_async(take_away)()
    assert (await reading)[-1] == ("bye", "", "signed-out")


def _dismiss(username):
    records.remove(Actor("alice", "admin"), Membership.objects.get(user__username=username))
