import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from dashboard.stream import shutdown
from dashboard.stream.hub import Hub

pytestmark = [pytest.mark.loop, pytest.mark.anyio]


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_the_signal_closes_the_hub_and_reaches_the_handler_that_was_there(handlers):
    told = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    hub = Hub("unix:///nowhere")
    shutdown.watch_signals(hub)
    shutdown.watch_signals(hub)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(2):
        while not hub.is_closing:  # noqa: ASYNC110  # the signal sets a flag
            await asyncio.sleep(0.01)
    assert told == [signal.SIGTERM]


async def test_pythons_own_handlers_are_left_alone(handlers):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shutdown.watch_signals(Hub("unix:///nowhere"))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_outside_the_main_thread_nothing_is_installed(handlers):
    signal.signal(signal.SIGTERM, lambda *_: None)
    before = signal.getsignal(signal.SIGTERM)

    def elsewhere():
        asyncio.run(_watch())

    async def _watch():
        shutdown.watch_signals(Hub("unix:///nowhere"))

    await asyncio.to_thread(elsewhere)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_process_with_the_watch_still_ends_on_sigterm():
    script = textwrap.dedent(
        """
        import asyncio, os, signal, sys
        import django
        from django.conf import settings
        settings.configure()
        from dashboard.stream.hub import Hub
        from dashboard.stream.shutdown import watch_signals
        async def main():
            loop = asyncio.get_running_loop()
            ended = asyncio.Event()
            signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(ended.set))
            watch_signals(Hub("unix:///nowhere"))
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(ended.wait(), 5)
        asyncio.run(main())
        """
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=30)  # noqa: S603  # our own script
    assert done.returncode == 0, done.stderr.decode()
