"""By hand, as in a browser: forms, actions and pages, for each role."""

import re

import pytest
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from control import selectors
from control.admin.site import room
from control.models import (
    ApiKey,
    AuditEvent,
    Backend,
    Grant,
    Membership,
    Override,
    Pool,
    QuotaRequest,
    Tenant,
    Tier,
)
from control.services import keys, overrides, quotas, records
from gateway.contract import keyring
from gateway.core.vocabulary import OverrideKind
from tests.fakes.installation import ALICE, PASSWORD, hire, queue

pytestmark = pytest.mark.django_db


@pytest.fixture
def people(installed):
    for role in ("viewer", "operator", "admin"):
        hire(role, role)


@pytest.fixture
def admin(client, people):
    sign_in(client, "admin")
    return client


def sign_in(client, username):
    assert client.login(request=_request(), username=username, password=PASSWORD)


def _request():
    return RequestFactory().post("/admin/login/")


def page(name, *args):
    return reverse(f"admin:{name}", args=args)


def filled(client, address, **changes):
    """What a browser would send after changing some fields of the form at this address."""
    form = client.get(address).context["adminform"].form
    values = {}
    for bound in form:
        value = bound.value()
        if value is not None and value is not False:
            values[bound.html_name] = value
    return {**values, **changes}


def post(client, url, data):
    return client.post(url, data)


def errors(response):
    return response.context["adminform"].form.errors


# --- an installation by hand ---------------------------------------------------------------------------------------


def test_a_tenant_with_grant_and_key_is_made_by_hand_and_is_in_the_policy(admin, settings, audited):
    pool, tier = Pool.objects.get(), Tier.objects.get(rank=2)
    with audited(3):
        assert (
            post(
                admin,
                page("control_tenant_add"),
                {"name": "umbrella", "refusal_messages": "{}", "enabled": "on"},
            ).status_code
            == 302
        )
        tenant = Tenant.objects.get(name="umbrella")
        grant = {
            "tenant": tenant.pk,
            "pool": pool.pk,
            "tier": tier.pk,
            "weight": "1",
            "requests_per_min": "60",
        }
        assert post(admin, page("control_grant_add"), grant).status_code == 302
        shown = post(admin, page("control_apikey_add"), {"tenant": tenant.pk, "name": "ci", "tier": ""})
    key = re.search(rb"sg_live_\w{12}_\w{49}", shown.content)[0].decode()
    row = ApiKey.objects.get()
    assert shown.status_code == 200
    assert "no-store" in shown["Cache-Control"]
    assert keyring.matches(settings.KEY_PEPPER.encode(), key, [row.digest])
    snapshot = selectors.current_snapshot()
    assert [spec.public_id for spec in snapshot.keys] == [row.public_id]
    assert ("umbrella", 2, 60) in [(g.tenant, g.tier, g.requests_per_min) for g in snapshot.grants]


def test_a_key_is_never_shown_again(admin):
    shown = post(admin, page("control_apikey_add"), {"tenant": Tenant.objects.get().pk, "name": "ci"})
    key = re.search(rb"sg_live_\w{12}_\w{49}", shown.content)[0]
    row = ApiKey.objects.get()
    for url in (
        page("control_apikey_changelist"),
        page("control_apikey_change", row.pk),
        page("control_auditevent_changelist"),
    ):
        body = admin.get(url).content
        assert key not in body
        assert row.digest.encode() not in body


def test_a_pool_and_its_backend_are_made_by_hand(admin, audited):
    form = filled(
        admin,
        page("control_pool_add"),
        name="embed",
        models_served="embed-small, embed",
        fallback_tiers="P0, 1",
    )
    with audited(2):
        assert post(admin, page("control_pool_add"), form).status_code == 302
        pool = Pool.objects.get(name="embed")
        backend = filled(
            admin, page("control_backend_add"), name="e1", pool=pool.pk, url="http://127.0.0.1:9300"
        )
        assert post(admin, page("control_backend_add"), backend).status_code == 302
    assert (pool.models_served, pool.fallback_tiers) == (["embed-small", "embed"], [0, 1])


# --- a policy is edited ----------------------------------------------------------------------------------------------


def change_queue(client, **changes):
    url = page("control_queuepolicy_change", queue().pk)
    return post(client, url, filled(client, url, **changes))


def test_a_changed_queue_policy_is_the_next_revision(admin, audited):
    before = selectors.current_revision_number()
    with audited(1):
        assert change_queue(admin, max_size="120", drop="tail").status_code == 302
    policy = selectors.current_snapshot().tiers[0].policy.queue
    assert (policy.max_size, policy.drop.value) == (120, "tail")
    assert selectors.current_revision_number() == before + 1
    row = AuditEvent.objects.order_by("-seq").first()
    assert (row.actor, row.origin, row.action) == ("admin", "admin", "updated")


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"max_size": "0"}, "max_size", "greater than or equal to 1"),
        ({"max_size": "many"}, "max_size", "whole number"),
        ({"timeout_s": "-1"}, "timeout_s", "greater than or equal to"),
        ({"timeout_s": "nan"}, "timeout_s", "number"),
        ({"drop": "newest-first"}, "drop", "not one of the available choices"),
        ({"max_size_per_tenant": "201"}, "__all__", "between 1 and the max size"),
        ({"delay_budget_s": "9"}, "delay_budget_s", "above timeout_s"),
        ({"retry_after_max_s": "61"}, "retry_after_max_s", "less than or equal to 60"),
    ],
    ids=["zero", "text", "negative", "nan", "choice", "tenant bound", "delay budget", "retry-after"],
)
def test_an_invalid_queue_policy_is_refused_beside_its_field_with_the_reason(
    admin, audited, changes, field, reason
):
    with audited(0):
        response = change_queue(admin, **changes)
    assert response.status_code == 200
    assert reason in " ".join(errors(response)[field])
    assert queue().max_size == 200


def test_what_only_the_whole_policy_shows_stands_above_the_form(admin, audited):
    url = page("control_tier_change", Tier.objects.get(rank=2).pk)
    with audited(0):
        response = post(admin, url, filled(admin, url, floor="0.9"))
    assert "sum to" in str(errors(response)["__all__"])


def test_a_backend_at_a_metadata_address_is_refused_beside_its_url(admin, audited):
    url = page("control_backend_change", Backend.objects.get().pk)
    with audited(0):
        response = post(admin, url, filled(admin, url, url="http://169.254.169.254/latest"))
    assert "metadata" in " ".join(errors(response)["url"])


@pytest.mark.parametrize("text", ["", "two words,", "[1"])
def test_model_names_are_typed_as_words(admin, text):
    url = page("control_pool_change", Pool.objects.get().pk)
    response = post(admin, url, filled(admin, url, models_served=text))
    if text:
        assert response.status_code == 302
        assert Pool.objects.get().models_served == text.replace(",", " ").split()
    else:
        assert "models_served" in errors(response)


def test_fallback_tiers_must_be_ranks(admin):
    url = page("control_pool_change", Pool.objects.get().pk)
    assert "fallback_tiers" in errors(post(admin, url, filled(admin, url, fallback_tiers="all")))


# --- deletions and actions --------------------------------------------------------------------------------------------


def act(client, table, action, *rows):
    data = {"action": action, "_selected_action": [row.pk for row in rows]}
    return client.post(page(f"control_{table}_changelist"), data)


def test_bulk_actions_leave_one_row_each(admin, audited):
    records.write(ALICE, Backend(name="b2", pool=Pool.objects.get(), url="http://127.0.0.1:9102"))
    rows = list(Backend.objects.all())
    for action, name, value in (
        ("drain", "drained", True), ("take_back", "drained", False),
        ("disable", "enabled", False), ("enable", "enabled", True),
    ):  # fmt: skip
        with audited(2):
            assert act(admin, "backend", action, *rows).status_code == 302
        assert set(Backend.objects.values_list(name, flat=True)) == {value}


def test_a_bulk_deletion_leaves_one_row_each(admin, audited):
    for name in ("one", "two"):
        records.write(ALICE, Tenant(name=name))
    rows = list(Tenant.objects.filter(name__in=("one", "two")))
    with audited(2):
        admin.post(
            page("control_tenant_changelist"),
            {"action": "delete_selected", "_selected_action": [row.pk for row in rows], "post": "yes"},
        )
    assert list(Tenant.objects.values_list("name", flat=True)) == ["acme"]


def test_a_deletion_that_breaks_the_policy_is_told_and_undone(admin, audited):
    row = Tier.objects.get(rank=0)
    with audited(0):
        response = admin.post(page("control_tier_delete", row.pk), {"post": "yes"}, follow=True)
    assert "ranks must be" in response.content.decode()
    assert Tier.objects.filter(rank=0).exists()


def test_what_is_in_use_is_not_deleted(admin, audited):
    with audited(0):
        admin.post(page("control_pool_delete", Pool.objects.get().pk), {"post": "yes"})
    assert Pool.objects.exists()


def test_keys_are_revoked_and_rotated_by_actions_and_never_deleted(admin, audited, settings):
    minted = keys.mint_key(ALICE, keys.MintKey(tenant="acme", name="ci"))
    row = ApiKey.objects.get()
    with audited(1):
        shown = act(admin, "apikey", "rotate", row)
    fresh = re.search(rb"sg_live_\w{12}_\w{49}", shown.content)[0].decode()
    row.refresh_from_db()
    assert keyring.matches(settings.KEY_PEPPER.encode(), fresh, [row.digest])
    assert keyring.matches(settings.KEY_PEPPER.encode(), minted.key, [row.previous_digest])
    with audited(1):
        act(admin, "apikey", "revoke", row)
    row.refresh_from_db()
    assert row.revoked_at is not None
    with audited(0):
        refused = admin.post(
            page("control_apikey_changelist"), {"action": "rotate", "_selected_action": [row.pk]}, follow=True
        )
        assert admin.post(page("control_apikey_delete", row.pk), {"post": "yes"}).status_code == 403
    assert "It is revoked" in refused.content.decode()


def test_quota_requests_are_approved_by_an_action(admin, audited):
    quotas.ask(ALICE, quotas.AskQuota(tenant="acme", pool="chat", justification="more", concurrency=9))
    with audited(2):
        act(admin, "quotarequest", "approve", QuotaRequest.objects.get())
    assert Grant.objects.get().concurrency == 9
    with audited(0):
        again = admin.post(
            page("control_quotarequest_changelist"),
            {"action": "decline", "_selected_action": [QuotaRequest.objects.get().pk]},
            follow=True,
        )
    assert "approved already" in again.content.decode()


def test_an_override_is_released_by_an_action_by_an_operator(client, people, audited):
    sign_in(client, "operator")
    overrides.set_override(
        ALICE,
        overrides.SetOverride(
            kind=OverrideKind.BREAKER, target="b1", value="open", reason="drill", lifetime_s=60
        ),
    )
    with audited(1):
        act(client, "override", "release", Override.objects.get())
    assert selectors.overrides_in_force() == ()


# --- people -------------------------------------------------------------------------------------------------------------


def test_a_person_is_made_and_given_a_role_by_hand(admin, audited):
    password = "correct horse battery staple"
    with audited(2):
        form = {"username": "nina", "password1": password, "password2": password, "usable_password": "true"}
        assert post(admin, page("auth_user_add"), form).status_code == 302
        nina = selectors.access.UserModel.objects.get(username="nina")
        role = {"user": nina.pk, "tenant": Tenant.objects.get().pk, "role": "tenant-member"}
        assert post(admin, page("control_membership_add"), role).status_code == 302
    assert Membership.objects.get(user=nina).role == "tenant-member"


def test_a_role_that_does_not_fit_is_refused_in_words(admin, audited):
    nina = selectors.access.UserModel.objects.get(username="viewer")
    with audited(0):
        response = post(
            admin, page("control_membership_add"), {"user": nina.pk, "tenant": "", "role": "tenant-owner"}
        )
    assert "tenant roles need one" in str(errors(response))


def test_a_password_is_changed_for_somebody_with_one_row_and_not_at_all_when_it_is_weak(admin, audited):
    viewer = selectors.access.UserModel.objects.get(username="viewer")
    url = page("auth_user_password_change", viewer.pk)
    good = "correct horse battery staple"
    with audited(0):
        post(admin, url, {"password1": "short", "password2": "short", "usable_password": "true"})
    with audited(1):
        assert (
            post(admin, url, {"password1": good, "password2": good, "usable_password": "true"}).status_code
            == 302
        )
    viewer.refresh_from_db()
    assert viewer.check_password(good)


def test_ones_own_password_is_changed_with_one_row(admin, audited):
    good = "correct horse battery staple"
    url = reverse("admin:password_change")
    with audited(0):
        admin.post(url, {"old_password": "wrong", "new_password1": good, "new_password2": good})
    with audited(1):
        admin.post(url, {"old_password": PASSWORD, "new_password1": good, "new_password2": good})


# --- who may what -------------------------------------------------------------------------------------------------------

TABLES = sorted(model._meta.model_name for model in room._registry)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_listed_searched_and_opened_without_a_query_per_row(
    admin, table, django_assert_max_num_queries
):
    app = "auth" if table == "user" else "control"
    keys.mint_key(ALICE, keys.MintKey(tenant="acme", name="ci"))
    with django_assert_max_num_queries(14):
        assert admin.get(page(f"{app}_{table}_changelist")).status_code == 200
    model = next(model for model in room._registry if model._meta.model_name == table)
    if room._registry[model].search_fields:
        assert admin.get(page(f"{app}_{table}_changelist"), {"q": "a"}).status_code == 200
    row = model._default_manager.first()
    if row is not None:
        assert admin.get(page(f"{app}_{table}_change", row.pk)).status_code == 200


def test_lists_do_not_cost_more_with_more_rows(admin, django_assert_num_queries):
    def cost(table):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            admin.get(page(f"control_{table}_changelist"))
        return len(queries)

    tables = ("tenant", "grant", "apikey", "backend", "tier", "queuepolicy", "membership")
    keys.mint_key(ALICE, keys.MintKey(tenant="acme", name="ci"))
    before = {table: cost(table) for table in tables}
    for number in range(3):
        tenant = Tenant(name=f"t{number}")
        records.write(ALICE, tenant)
        records.write(ALICE, Grant(tenant=tenant, pool=Pool.objects.get(), tier=Tier.objects.get(rank=2)))
        records.write(ALICE, Backend(name=f"x{number}", pool=Pool.objects.get(), url="http://127.0.0.1:9"))
        keys.mint_key(ALICE, keys.MintKey(tenant=f"t{number}", name="k", tier=2))
        hire(f"p{number}", "viewer")
    assert {table: cost(table) for table in tables} == before


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_may_not_edit_sees_but_changes_nothing(client, people, audited, role):
    sign_in(client, role)
    url = page("control_queuepolicy_change", queue().pk)
    assert client.get(url).status_code == 200
    with audited(0):
        assert client.post(url, {"name": "x"}).status_code == 403
        assert client.get(page("control_tenant_add")).status_code == 403
        assert (
            client.post(page("control_tenant_delete", Tenant.objects.get().pk), {"post": "yes"}).status_code
            == 403
        )
        act(client, "backend", "disable", Backend.objects.get())
    assert Backend.objects.get().enabled


def test_a_viewer_releases_no_override(client, people, audited):
    sign_in(client, "viewer")
    overrides.set_override(
        ALICE,
        overrides.SetOverride(
            kind=OverrideKind.BREAKER, target="b1", value="open", reason="drill", lifetime_s=60
        ),
    )
    with audited(0):
        act(client, "override", "release", Override.objects.get())
    assert len(selectors.overrides_in_force()) == 1


def test_a_tenants_people_and_strangers_do_not_get_in(client, people):
    hire("tina", "tenant-owner", "acme")
    assert client.get(reverse("admin:index")).status_code == 302
    sign_in(client, "tina")
    assert client.get(reverse("admin:index")).status_code == 302


@pytest.mark.parametrize(
    "table", ["auditevent", "policyrevision", "override", "incident", "usageledger", "quotarequest"]
)
def test_history_is_read_only_for_everybody(admin, audited, table):
    with audited(0):
        assert admin.get(page(f"control_{table}_add")).status_code == 403
    model = next(model for model in room._registry if model._meta.model_name == table)
    row = model._default_manager.first()
    if row is not None:
        with audited(0):
            assert admin.post(page(f"control_{table}_change", row.pk), {}).status_code == 403
            assert admin.post(page(f"control_{table}_delete", row.pk), {"post": "yes"}).status_code == 403


def test_markup_in_names_is_text(admin):
    tenant = Tenant.objects.get()
    tenant.title = "<script>alert(1)</script>\u202e\U0001f600"
    records.write(ALICE, tenant)
    assert b"<script>alert" not in admin.get(page("control_tenant_changelist")).content


def test_a_forged_form_changes_nothing(people, audited):
    client = Client(enforce_csrf_checks=True)
    sign_in(client, "admin")
    with audited(0):
        assert client.post(page("control_tenant_add"), {"name": "forged"}).status_code == 403
    assert not Tenant.objects.filter(name="forged").exists()
