"""Bodies decoded whole: what is good comes back equal, what is not is refused with the field and the reason."""

import json
import random

import msgspec
import pytest

from gateway.contract import codec
from gateway.contract.codec import ContractRefused, decode_snapshot, encode
from gateway.contract.explanation import Explanation
from gateway.contract.overrides import Overrides
from gateway.contract.report import GatewayReport, UsageDelta
from gateway.core.commands import Decision
from tests.fakes.published import a_snapshot, an_override, some_bounds

REPORT = GatewayReport(
    gateway="g1",
    boot="b",
    started_at=1.0,
    sent_at=2.0,
    seq=3,
    snapshot_revision=4,
    snapshot_refused=None,
    bounds_epoch=5,
    bounds_seq=6,
    overrides_version=7,
    ledger_imbalance=0,
    draining=False,
    degraded=True,
    traffic=(),
    tiers=(),
    backends=(),
    tenants=(),
)
USAGE = UsageDelta(
    gateway="g1",
    boot="b",
    seq=1,
    at=1.0,
    tenant="acme",
    pool="chat",
    requests=1,
    prompt_tokens=2,
    output_tokens=3,
)
EXPLANATION = Explanation(
    request_id="r1",
    gateway="g1",
    at=1.0,
    tenant="acme",
    pool="chat",
    tier=1,
    outcome="refused",
    reason="queue_full",
    status=429,
    backend="",
    is_retry=False,
    prompt_tokens=10,
    wait_s=None,
    retry_after_s=3,
    decision=Decision("queue-size", 4, 4, 5, 2.5),
)


@pytest.mark.parametrize(
    ("body", "decode"),
    [
        (a_snapshot(3), codec.decode_snapshot),
        (some_bounds(1, 2), codec.decode_bounds),
        (Overrides(version=1, overrides=(an_override(),)), codec.decode_overrides),
        (REPORT, codec.decode_report),
        (USAGE, codec.decode_usage),
        (EXPLANATION, codec.decode_explanation),
    ],
)
def test_what_is_encoded_comes_back_equal(body, decode):
    assert decode(encode(body)) == body


def test_a_frame_of_more_than_16_kb_is_refused():
    with pytest.raises(ContractRefused, match="larger than 16384 bytes"):
        codec.decode_frame(b" " * (16 << 10) + b"{}")


def changed(**fields: object) -> bytes:
    body = json.loads(encode(a_snapshot(3)))
    body.update(fields)
    return json.dumps(body).encode()


def test_fields_that_a_newer_control_plane_adds_are_ignored():
    body = json.loads(encode(a_snapshot(3)))
    body["added"] = {"later": 1}
    body["pools"][0]["added"] = body["pools"][0]["policy"]["added"] = 1
    assert decode_snapshot(json.dumps(body).encode()) == a_snapshot(3)


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        (b"", "", "truncated"),
        (b"null", "", "Expected `object`"),
        (b"[" * 100_000, "", "Expected `object`"),
        (b'{"schema":1,"a":' + b"[" * 100_000, "", ""),
        (b"\xff\xfe", "", "malformed"),
        (changed(schema=0), "schema", "is 0; this side reads 1 to 1"),
        (changed(schema=2), "schema", "is 2"),
        (changed(schema="1"), "schema", "Expected `int`"),
        (changed(revision=None), "revision", "Expected `int`"),
        (changed(revision=1e400), "revision", ""),
        (changed(tiers=[]), "tiers", "at least one"),
        (changed(pools=[{"policy": {"name": 3}}]), "pools[0].policy.name", "Expected `str`"),
    ],
)
def test_what_is_not_a_snapshot_is_refused_with_field_and_reason(data, field, message):
    with pytest.raises(ContractRefused) as refusal:
        decode_snapshot(data)
    assert refusal.value.field == field or not message
    assert message in refusal.value.message


def test_the_schema_before_is_accepted(monkeypatch):
    kind = codec._Kind(type(a_snapshot()), 1 << 20, 2)
    assert kind.decode(encode(a_snapshot(3, schema=1))).revision == 3
    assert kind.decode(encode(a_snapshot(3, schema=2))).revision == 3
    with pytest.raises(ContractRefused, match="schema: is 3; this side reads 1 to 2"):
        kind.decode(encode(a_snapshot(3, schema=3)))


def test_a_refusal_without_a_field_is_its_message_alone():
    assert str(ContractRefused("", "why")) == "why"
    assert str(ContractRefused("where", "why")) == "where: why"


def test_no_mutation_of_a_snapshot_is_more_than_refused():
    """200 damaged bodies: each is a good snapshot or a ContractRefused, never anything else."""
    dice = random.Random(20)  # noqa: S311  # repeatable
    good = encode(a_snapshot(3))
    refused = 0
    for _ in range(200):
        data = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(data))
            data[place : place + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
        try:
            assert isinstance(decode_snapshot(bytes(data)), msgspec.Struct)
        except ContractRefused:
            refused += 1
    assert refused > 100
