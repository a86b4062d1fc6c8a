"""`manage.py control_loop`: the slow loop without Celery, for small installations and for looking at it."""

import os
import signal
import socket
import time
from argparse import ArgumentParser
from threading import Event
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control import environment, store
from control.slow_loop import SlowLoop


class Command(BaseCommand):
    """Tick until SIGTERM or Ctrl-C; says each change of outcome."""

    help = "Run the slow loop (scrape, calibrate, publish) here, once a second, without Celery."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Flags."""
        parser.add_argument(
            "--ticks", type=int, default=0, metavar="N", help="end after N ticks (default: never)"
        )
        parser.add_argument(
            "--period", type=float, default=1.0, metavar="S", help="seconds between ticks, .2 to 10"
        )

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401  # Django's own signature
        """Tick."""
        period_s, ticks = options["period"], options["ticks"]
        if not 0.2 <= period_s <= 10.0:
            raise CommandError(f"--period {period_s}: expected .2 to 10 seconds.")
        environment.demand_secrets()
        stop = Event()
        before = {n: signal.signal(n, lambda *_: stop.set()) for n in (signal.SIGTERM, signal.SIGINT)}
        loop = SlowLoop(store.connect(), f"{socket.gethostname()}-{os.getpid()}", time.time)
        try:
            self._run(loop, stop, period_s, ticks)
        finally:
            loop.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self, loop: SlowLoop, stop: Event, period_s: float, ticks: int) -> None:
        due, done, said = time.monotonic(), 0, ""
        while not stop.is_set() and not (ticks and done >= ticks):
            tick = loop.tick()
            done += 1
            if tick.outcome != said:
                said = tick.outcome
                self.stdout.write(
                    f"{said} (epoch {tick.epoch}, seq {tick.seq}, took {tick.took_s * 1000:.0f} ms)"
                )
            due = max(due + period_s, time.monotonic())
            stop.wait(max(0.0, due - time.monotonic()))
