"""What the gatekeeper calls: reserve, settle, refund, each once per ticket."""

import asyncio

from gateway.core.events import QuotaDenied, QuotaGranted
from gateway.core.vocabulary import ShedReason
from gateway.quotas import Quotas
from tests.fakes.quota_gateway import QuotaGateway

NOWHERE = "unix:///not/there.sock"


def answers_of(gateway: QuotaGateway) -> list[QuotaGranted | QuotaDenied]:
    told: list[QuotaGranted | QuotaDenied] = []
    gateway.quotas.answer = told.append
    return told


async def test_a_tenant_without_bounds_is_granted_at_once_and_counts_nowhere():
    quotas = QuotaGateway(NOWHERE).quotas
    assert quotas.reserve("r1", "acme", "chat", 100) == QuotaGranted("r1")
    assert quotas.reserve("r2", "nobody", "nowhere", 100) == QuotaGranted("r2")
    quotas.settle("r1", 5)
    quotas.refund("r2")
    assert (quotas.decisions, quotas.open_reservations) == ({}, 0)


async def test_an_empty_lease_waits_at_most_its_patience_then_the_share_decides():
    gateway = QuotaGateway(NOWHERE, gateways=2, patience_s=0.02, requests_per_min=60, requests_burst=4)
    told = answers_of(gateway)
    for name in ("r1", "r2", "r3"):
        assert gateway.quotas.reserve(name, "acme", "chat", 0) is None
    assert gateway.quotas.has_waiting
    await asyncio.sleep(0.06)
    assert [type(a) for a in told] == [QuotaGranted, QuotaGranted, QuotaDenied]
    assert told[2].reason is ShedReason.RATE_LIMITED
    assert not gateway.quotas.has_waiting
    assert gateway.quotas.decisions == {("alone", "granted"): 2, ("alone", "denied"): 1}
    assert isinstance(gateway.quotas.reserve("r4", "acme", "chat", 0), QuotaDenied)  # alone: at once


async def test_a_ticket_that_gives_up_while_it_waits_is_forgotten():
    gateway = QuotaGateway(NOWHERE, patience_s=0.02, requests_per_min=60)
    told = answers_of(gateway)
    assert gateway.quotas.reserve("r1", "acme", "chat", 0) is None
    gateway.quotas.refund("r1")
    gateway.quotas.refund("r1")
    await asyncio.sleep(0.05)
    assert (told, gateway.quotas.has_waiting, gateway.quotas.open_reservations) == ([], False, 0)


async def test_settle_and_refund_count_once_whatever_is_called_how_often():
    gateway = QuotaGateway(NOWHERE, tokens_per_min=1000)
    gateway.quotas.go_alone()
    for name in ("r1", "r2"):
        assert isinstance(gateway.quotas.reserve(name, "acme", "chat", 400), QuotaGranted)
    assert gateway.quotas.open_reservations == 2
    gateway.quotas.settle("r1", 100)
    gateway.quotas.settle("r1", 100)
    gateway.quotas.refund("r1")
    gateway.quotas.refund("r2")
    gateway.quotas.settle("r2", 400)
    standing = gateway.quotas.standing("acme", "chat")
    assert (standing.tokens.remaining, gateway.quotas.open_reservations) == (900, 0)


async def test_a_negative_reservation_is_nothing():
    gateway = QuotaGateway(NOWHERE, tokens_per_min=1000)
    gateway.quotas.go_alone()
    gateway.quotas.reserve("r1", "acme", "chat", -500)
    assert gateway.quotas.standing("acme", "chat").tokens.remaining == 1000
    gateway.quotas.settle("r1", -500)
    assert gateway.quotas.standing("acme", "chat").tokens.remaining == 1000


async def test_a_grant_that_loses_its_bounds_lets_go_what_waits():
    gateway = QuotaGateway(NOWHERE, requests_per_min=60)
    told = answers_of(gateway)
    assert gateway.quotas.reserve("r1", "acme", "chat", 0) is None
    gateway.grant()
    assert told == [QuotaGranted("r1")]
    assert gateway.quotas.standing("acme", "chat") is None
    gateway.quotas.settle("r1", 5)  # on the account that it was made on


async def test_a_grant_that_changes_keeps_what_is_in_flight():
    gateway = QuotaGateway(NOWHERE, concurrency=1)
    gateway.quotas.go_alone()
    assert isinstance(gateway.quotas.reserve("r1", "acme", "chat", 0), QuotaGranted)
    gateway.grant(concurrency=2)
    assert isinstance(gateway.quotas.reserve("r2", "acme", "chat", 0), QuotaGranted)
    assert isinstance(gateway.quotas.reserve("r3", "acme", "chat", 0), QuotaDenied)
    assert gateway.quotas.standing("acme", "chat") is None  # no bucket, so nothing to show


def test_quotas_need_no_valkey_in_the_path_of_a_request():
    """Requirement: no await on Valkey where a request is decided. All three calls are plain functions."""
    for name in ("reserve", "settle", "refund", "standing"):
        assert not asyncio.iscoroutinefunction(getattr(Quotas, name))
