"""The Celery app: settings come from Django (`CELERY_*`), tasks are in `control.tasks`, which knows what they do."""

import os

from celery import Celery
from celery.signals import beat_init, worker_init

from control import environment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")

app = Celery("sluicegate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = ("control.tasks",)


@worker_init.connect
@beat_init.connect
def refuse_to_start(**_: object) -> None:
    """A worker that can't sign and a beat beside it are of no use: one line, and the end."""
    environment.demand_secrets()
