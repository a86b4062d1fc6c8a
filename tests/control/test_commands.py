import json
import stat
from io import StringIO

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from control import audit
from control.models import ApiKey, Backend, Grant
from control.publishing import deliver
from control.services import records
from gateway.contract import keyring, keys
from tests.fakes.installation import ALICE, queue
from tests.fakes.published import a_snapshot, sealed

pytestmark = pytest.mark.django_db
FLAGS = (
    "--model=demo-chat",
    "--backend=demo-1=http://127.0.0.1:9101,vllm",
    "--backend=demo-2=http://127.0.0.1:9102,vllm",
)


def run(*words):
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


@pytest.fixture(autouse=True)
def state(settings, tmp_path):
    settings.STATE_DIR = tmp_path
    return tmp_path


def credentials(state):
    return json.loads((state / "credentials.json").read_text())


def test_seed_demo_prints_each_key_once_and_keeps_them_for_the_owner_alone(db, state):
    said = run("seed_demo", *FLAGS)
    kept = credentials(state)
    assert [row["tier"] for row in kept["keys"]] == ["P0", "P1", "P2"]
    assert all(row["key"] in said for row in kept["keys"])
    assert kept["operator"]["password"] in said
    assert stat.S_IMODE((state / "credentials.json").stat().st_mode) == 0o600
    assert sorted(Backend.objects.values_list("name", flat=True)) == ["demo-1", "demo-2"]


def test_the_kept_keys_and_the_kept_password_work(db, state, settings):
    run("seed_demo", *FLAGS)
    kept = credentials(state)
    for row in kept["keys"]:
        stored = ApiKey.objects.get(public_id=keyring.public_id_of(row["key"]))
        assert stored.tenant.name == row["tenant"]
        assert keyring.matches(settings.KEY_PEPPER.encode(), row["key"], [stored.digest])
    user = authenticate(RequestFactory().post("/"), **kept["operator"])
    assert user is not None


def test_seed_demo_again_prints_and_changes_nothing(db, state, audited):
    run("seed_demo", *FLAGS)
    before = credentials(state)
    with audited(0):
        assert run("seed_demo", *FLAGS) == ""
    assert credentials(state) == before
    assert Grant.objects.count() == 3


def test_seed_demo_makes_new_ones_where_the_file_was_lost(db, state):
    run("seed_demo", *FLAGS)
    before = credentials(state)
    (state / "credentials.json").unlink()
    run("seed_demo", *FLAGS)
    after = credentials(state)
    assert after["operator"]["password"] != before["operator"]["password"]
    assert {row["tenant"] for row in after["keys"]} == {row["tenant"] for row in before["keys"]}
    assert {row["key"] for row in after["keys"]}.isdisjoint({row["key"] for row in before["keys"]})


@pytest.mark.parametrize(
    "text", ["x", "name=", "a=http://h", "=http://h,vllm", "a=http://h,unknown", "a=ftp://h,vllm"]
)
def test_seed_demo_refuses_a_bad_backend_and_leaves_nothing(db, state, text):
    with pytest.raises(CommandError):
        run("seed_demo", f"--backend={text}")
    assert not Grant.objects.exists()
    assert not (state / "credentials.json").exists()


def test_seed_demo_can_cap_retry_after(db):
    run("seed_demo", *FLAGS, "--retry-after-max=5")
    assert queue("batch-extraction").retry_after_max_s == 5


def test_audit_verify_says_that_the_chain_is_whole_and_prints_an_anchor(installed):
    assert "the chain is whole" in run("audit_verify")
    anchor = run("audit_verify", "--print-anchor").strip()
    assert anchor == str(audit.anchor())
    policy = queue()
    policy.max_size = 3
    records.write(ALICE, policy)
    assert "the chain is whole" in run("audit_verify", f"--anchor={anchor}")


def test_audit_verify_fails_where_it_is_not(installed):
    number, _, digest = run("audit_verify", "--print-anchor").strip().partition(":")
    with pytest.raises(CommandError, match="differs from the anchor"):
        run("audit_verify", f"--anchor={number}:{digest[::-1]}")
    with pytest.raises(CommandError, match="number:digest"):
        run("audit_verify", "--anchor=what")


@pytest.mark.django_db(transaction=True)
def test_publish_says_what_became_of_it(valkey, state):
    run("seed_demo", *FLAGS)
    assert run("publish") == "snapshot: current\noverrides: sent\n"
    assert run("publish") == "snapshot: current\noverrides: current\n"
    with valkey.client() as client:
        client.flushall()
    assert run("publish") == "snapshot: sent\noverrides: sent\n"
    assert run("publish", "--force").splitlines()[0] == "generation 2"


@pytest.mark.django_db(transaction=True)
def test_publish_fails_in_words_where_valkey_has_something_newer(valkey):
    run("seed_demo", *FLAGS)
    with valkey.client() as client:
        client.set(keys.SNAPSHOT, sealed(a_snapshot(9999), (1, 0, 9999), key=deliver.signing_keys()[0]))
    with pytest.raises(CommandError, match="publish --force"):
        run("publish")
    assert "snapshot: sent" in run("publish", "--force")


def test_publish_fails_in_words_where_valkey_is_away(installed):
    with pytest.raises(CommandError, match="REDIS_URL"):
        run("publish")
    with pytest.raises(CommandError, match="REDIS_URL"):
        run("publish", "--force")


def test_no_command_prints_a_trace_for_a_missing_secret(settings, capsys):
    settings.SIGNING_KEY = ""
    for command in ("seed_demo", "publish"):
        with pytest.raises(SystemExit):
            run(command)
        assert capsys.readouterr().err.count("\n") == 1
