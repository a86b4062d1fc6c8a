import json

import pytest
from celery.signals import beat_init, worker_init
from django.conf import settings
from kombu import Queue

from control.celery import app


def test_beat_asks_for_the_tick_each_second_and_lets_a_late_one_expire():
    entry = app.conf.beat_schedule["tick"]
    assert entry == {
        "task": "control.tasks.tick",
        "schedule": 1.0,
        "options": {"expires": 1, "queue": "loop"},
    }


def test_only_json_is_accepted():
    assert (app.conf.task_serializer, list(app.conf.accept_content)) == ("json", ["json"])


def test_a_task_is_never_delivered_again_while_it_may_still_run():
    assert app.conf.broker_transport_options["visibility_timeout"] > app.conf.task_time_limit


def test_a_worker_and_a_beat_without_a_secret_end_with_one_line(settings, capsys):
    settings.SIGNING_KEY = ""
    for signal in (worker_init, beat_init):
        with pytest.raises(SystemExit):
            signal.send(sender=None)
        assert capsys.readouterr().err.startswith("sluicegate: SLUICEGATE_SIGNING_KEY")


def test_a_task_travels_under_our_prefix_in_its_own_queue(valkey):
    broker = f"redis+socket://{valkey.socket}?virtual_host=0"
    with app.connection_for_write(
        url=broker, transport_options=settings.CELERY_BROKER_TRANSPORT_OPTIONS
    ) as connection:
        app.send_task("control.tasks.tick", connection=connection, expires=1)
        app.send_task("control.tasks.something_long", connection=connection, queue=Queue("work"))
        with valkey.client() as client:
            names = {name.decode() for name in client.keys("*")}
            message = json.loads(client.lindex("sluicegate:celery:loop", 0))
    assert {"sluicegate:celery:loop", "sluicegate:celery:work"} <= names
    assert all(name.startswith("sluicegate:celery:") for name in names)
    assert message["headers"]["task"] == "control.tasks.tick"
