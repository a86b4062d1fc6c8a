"""The slow loop: scrape, calibrate, merge, publish, once a second. Celery (or `control_loop`) only calls it."""

from control.slow_loop.loop import SlowLoop, Tick

__all__ = ["SlowLoop", "Tick"]
