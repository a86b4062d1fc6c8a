"""After an old backup was restored: a new generation, which gateways take although its numbers look older."""

from control import publishing
from control.audit import Actor, change


def begin(actor: Actor) -> int:
    """Begin a generation above the database's and Valkey's; returns its number. The caller publishes afterwards.

    Raises:
        control.store.StoreFault: Valkey can't be asked for its generation.
    """
    with change(actor, "generation begun") as entry:
        generation = publishing.force_generation()
        entry.object_type, entry.object_name = "publishing", "generation"
        entry.note("generation", before=None, after=generation)
    return generation
