import re
import time

import pytest
from django.urls import reverse

from tests.fakes.frames import publish
from tests.fakes.installation import PASSWORD
from tests.fakes.scenes import backend, frame, gateway, override

PAGES = ["/", "/audit/", "/live/history/", "/backends/b1/override/"]


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_signing_in(client, db, valkey, path):
    answer = client.get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/sign-in/?next={path}")


@pytest.mark.parametrize("path", PAGES)
def test_a_tenants_own_people_do_not_see_the_control_room(signed_in, valkey, path):
    answer = signed_in("tina").get(path)
    assert answer.status_code == 403
    assert "tina has no role in the control room" in answer.content.decode()


@pytest.mark.parametrize("path", ["/", "/audit/", "/backends/b1/override/", "/sign-in/"])
def test_no_page_has_an_inline_script_or_style(signed_in, valkey, path):
    publish(valkey, fresh(overrides=(override("b1"),)))
    client = signed_in("omar")
    if path == "/sign-in/":
        client.logout()
    answer = client.get(path)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert "default-src 'none'" in answer["Content-Security-Policy"]


def test_overrides_in_force_and_notices_stand_on_every_page(signed_in, valkey):
    publish(valkey, fresh(overrides=(override("b1"),), gateways=(gateway(snapshot_refused="pools: empty"),)))
    for path in ("/", "/audit/", "/backends/b1/override/"):
        page = signed_in("vera" if path != "/backends/b1/override/" else "omar").get(path).content.decode()
        assert "1 override" in page
        assert "gw-1 refuses the newest snapshot: pools: empty" in page


def test_signing_in_leads_back_to_the_page_that_was_asked_for(client, installed, valkey):
    answer = client.post(
        "/sign-in/?next=/audit/", {"username": "omar", "password": PASSWORD, "next": "/audit/"}
    )
    assert (answer.status_code, answer["Location"]) == (302, "/audit/")


def test_a_wrong_password_says_so_and_signs_nobody_in(client, installed):
    answer = client.post("/sign-in/", {"username": "omar", "password": "wrong"})
    assert answer.status_code == 200
    assert "correct" in answer.content.decode()
    assert reverse("dashboard:sign-out") not in answer.content.decode()


def fresh(**changes):
    return frame(at=time.time(), **({"backends": (backend("b1"),)} | changes))
