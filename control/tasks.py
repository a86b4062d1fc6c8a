"""Celery tasks. Each only calls what does the work, so that the work can run and be tested without Celery."""

import os
import socket
import time

from celery.signals import worker_shutdown

from control import store
from control.celery import app
from control.slow_loop import SlowLoop

_loop: SlowLoop | None = None


def slow_loop() -> SlowLoop:
    """The loop of this process, made at its first tick. Queue `loop` runs in one process and one thread (`-P solo`)."""
    global _loop  # noqa: PLW0603  # one per process, and Celery has no place of its own for it
    if _loop is None:
        _loop = SlowLoop(store.connect(), f"{socket.gethostname()}-{os.getpid()}", time.time)
    return _loop


@app.task(name="control.tasks.tick", expires=1)
def tick() -> str:
    """One second of the slow loop."""
    return slow_loop().tick().outcome


@worker_shutdown.connect
def _release(**_: object) -> None:
    if _loop is not None:
        _loop.close()
