"""Quotas of tenants: taken from memory, shared over gateways through leases that are renewed in the background.

    requests/min, LLM tokens/min   a bucket in Valkey; each gateway holds a lease of it          leases.Lease
    concurrency                    a field per live gateway in Valkey; each is allotted seats    leases.Seats
    monthly LLM tokens             a counter in Valkey, which the snapshot's month-to-date backs leases.Month

What is promised, per tenant and pool:

- With Valkey up the leases and the shared bucket together never hold more than one burst, so that all gateways
  together grant at most burst + rate * t in any t; seats of all gateways together never exceed the limit.
- A request is decided from memory, unless its lease is empty and the shared bucket may still have some: then it waits
  for the next renewal, which takes everything asked meanwhile in one batch, at most `PATIENCE_S`.
- Without Valkey each gateway goes on alone with its share: what it held, 1/G of what was last known to lie in the
  shared bucket, and 1/G of the rate; seats max(1, limit // G). G is the number of gateways last known. What was
  granted alone is owed to the shared bucket afterwards.
- Refused and evicted tickets give back everything; each reservation is settled or refunded once.
- Clocks that jump add nothing: the elapsed time of a refill is bounded by the monotonic clock of whoever asks.
- A gateway that dies takes its lease (at most a quarter second of refill, or one ask) and, for `FORGOTTEN_S`, its seats.
"""

from gateway.quotas.accounts import Allowance, Standing
from gateway.quotas.quotas import Quotas

__all__ = ["Allowance", "Quotas", "Standing"]
