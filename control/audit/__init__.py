"""No change without its audit row: one transaction, exactly one row, chained by digests.

    with audit.change(actor, "updated", reason="...") as entry:
        entry.about(record)
        entry.note("max_size", before=200, after=100)
        record.save()

`chain` computes, appends and verifies; `Entry` collects; `change` ties both to the transaction.
"""

from control.audit.chain import Anchor, ChainFault, anchor, verify
from control.audit.change import Actor, Entry, change

__all__ = ["Actor", "Anchor", "ChainFault", "Entry", "anchor", "change", "verify"]
