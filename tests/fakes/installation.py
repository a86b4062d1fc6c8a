"""A small installation in the tables: three tiers, one pool with one backend, one tenant with a grant, three people."""

from control.audit import Actor
from control.models import Backend, Grant, Pool, QueuePolicy, Tenant, Tier
from control.services import demo, people, records

ALICE = Actor("alice", "admin")  # edits policy
PASSWORD = "a password for tests only"


def install() -> None:
    """Everything, through the services."""
    demo.install_tiers(ALICE)
    pool = Pool(name="chat", models_served=["tiny", "tiny-alias"])
    records.write(ALICE, pool)
    records.write(ALICE, Backend(name="b1", pool=pool, url="http://127.0.0.1:9101", engine="llama_cpp"))
    tenant = Tenant(name="acme", title="Acme")
    records.write(ALICE, tenant)
    records.write(ALICE, Grant(tenant=tenant, pool=pool, tier=Tier.objects.get(rank=1)))


def hire(username: str, role: str, tenant: str | None = None) -> None:
    """Somebody with one role."""
    people.add_person(ALICE, people.Person(username=username, password=PASSWORD, role=role, tenant=tenant))


def queue(name: str = "realtime-interactive") -> QueuePolicy:
    """A queue policy as it is in the tables."""
    return QueuePolicy.objects.get(name=name)
