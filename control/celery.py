"""The Celery app: settings come from Django (`CELERY_*`), tasks are in `control.tasks`, which knows what they do."""

import os
import sys

from celery import Celery
from celery.signals import beat_init, worker_init
from django.core.exceptions import ImproperlyConfigured

from control import environment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
try:
    environment.own_secrets()  # reads the settings: here what is wrong in them can be said in one line
except ImproperlyConfigured as error:
    sys.stderr.write(f"sluicegate: {error}\n")
    raise SystemExit(2) from None

app = Celery("sluicegate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = ("control.tasks",)


@worker_init.connect
@beat_init.connect
def refuse_to_start(**_: object) -> None:
    """A worker that can't sign and a beat beside it are of no use: one line, and the end."""
    environment.demand_secrets()
