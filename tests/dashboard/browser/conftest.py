"""A real Chromium on a real web process. Without a browser these tests say so loudly; under CI=true they fail."""

import contextlib
import threading
import time

import pytest

from tests.fakes.browser import running_chromium
from tests.fakes.control_room import running_control_room
from tests.fakes.frames import frame_at, publish
from tests.fakes.installation import PASSWORD


@pytest.fixture(scope="module")
def chromium():
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def room():
    with running_control_room() as started:
        yield started


class Writer:
    """Publishes a frame of the story now and then, until it is told to stop."""

    def __init__(self, room, start, every_s=0.25):
        self.start, self.every_s, self.changes = start, every_s, {}
        self._room, self._began = room, time.time()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with self._room.valkey.client() as client:
            while not self._stopped.wait(self.every_s):
                with contextlib.suppress(
                    Exception
                ):  # the test froze or killed Valkey: that is what is tested
                    now = time.time()
                    publish(client, frame_at(self.start + now - self._began, now, **self.changes))

    def stop(self):
        self._stopped.set()
        self._thread.join(10)


@pytest.fixture
def write(room):
    """`write(540.0)`: frames from that second of the story on."""
    with room.valkey.client() as client:
        client.flushall()
    started = []

    def start(second, **more):
        started.append(Writer(room, second, **more))
        return started[-1]

    yield start
    for writer in started:
        writer.stop()


class Seen:
    """What went wrong while a page was open."""

    def __init__(self, page):
        self.faults = []
        page.on(
            "console", lambda m: m.type in ("error", "warning") and self.faults.append(f"console: {m.text}")
        )
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("response", lambda r: r.status >= 500 and self.faults.append(f"{r.status} {r.url}"))


@pytest.fixture
def open_page(chromium, room):
    """`open_page("omar", "/")`: a page of somebody signed in. What goes wrong in it fails the test."""
    contexts, watched = [], []

    def opened(username, path="/", *, width=1440, height=900, dark=False, expected_faults=(), **more):
        scheme = "dark" if dark else "light"
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, base_url=room.url, **more
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        watched.append((Seen(page), expected_faults))
        page.goto(f"/sign-in/?next={path}")
        page.fill("#id_username", username)
        page.fill("#id_password", PASSWORD)
        page.press("#id_password", "Enter")
        page.wait_for_selector("#main .page-head")
        return page

    yield opened
    for context in contexts:
        context.close()
    for seen, expected in watched:
        left = [fault for fault in seen.faults if not any(words in fault for words in expected)]
        assert left == []
