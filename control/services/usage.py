"""The usage ledger: gateways' deltas, each counted exactly once however often it arrives."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import F

from control.models import UsageLedger, UsageMark
from gateway.contract.report import UsageDelta


def record(deltas: Iterable[UsageDelta]) -> int:
    """Add what is new to the hours it belongs to; returns how many deltas were new.

    A delta is known by (gateway, boot, seq): within one boot the sequence only grows, and what is not above the mark
    was counted before. Deltas of one boot must come in order, as the stream keeps them.
    """
    runs: dict[tuple[str, str], list[UsageDelta]] = defaultdict(list)
    for delta in deltas:
        runs[delta.gateway, delta.boot].append(delta)
    with transaction.atomic():
        return sum(_record_run(gateway, boot, run) for (gateway, boot), run in sorted(runs.items()))


def _record_run(gateway: str, boot: str, run: list[UsageDelta]) -> int:
    mark, _ = UsageMark.objects.select_for_update().get_or_create(
        gateway=gateway, boot=boot, defaults={"seq": 0}
    )
    count = 0
    for delta in sorted(run, key=lambda d: d.seq):
        if delta.seq > mark.seq:
            _add(delta)
            mark.seq = delta.seq
            count += 1
    if count:
        mark.save()
    return count


def _add(delta: UsageDelta) -> None:
    hour = datetime.fromtimestamp(delta.at, UTC).replace(minute=0, second=0, microsecond=0)
    row, _ = UsageLedger.objects.get_or_create(tenant=delta.tenant, pool=delta.pool, hour=hour)
    UsageLedger.objects.filter(pk=row.pk).update(
        requests=F("requests") + delta.requests,
        prompt_tokens=F("prompt_tokens") + delta.prompt_tokens,
        output_tokens=F("output_tokens") + delta.output_tokens,
    )
