"""Whole seats: how many a share of something is, and who holds those in use."""


def whole_share(size: int, share: float) -> int:
    """This gateway's part of a size that counts over all gateways: whole, at least 1."""
    return max(1, int(size * share + 1e-9))


class Seats:
    """Who holds the seats of one backend. A seat is taken once per attempt and given back once."""

    __slots__ = ("by_tenant", "by_tier", "taken")

    def __init__(self) -> None:
        """Start with nothing in flight."""
        self.taken = 0
        self.by_tier: dict[int, int] = {}
        self.by_tenant: dict[str, int] = {}

    def take(self, tier: int, tenant: str) -> None:
        """Count one more in flight."""
        self.taken += 1
        self.by_tier[tier] = self.by_tier.get(tier, 0) + 1
        self.by_tenant[tenant] = self.by_tenant.get(tenant, 0) + 1

    def give_back(self, tier: int, tenant: str) -> None:
        """Count one less in flight."""
        self.taken -= 1
        of_tier = self.by_tier[tier] - 1
        if of_tier:
            self.by_tier[tier] = of_tier
        else:
            del self.by_tier[tier]
        of_tenant = self.by_tenant[tenant] - 1
        if of_tenant:
            self.by_tenant[tenant] = of_tenant
        else:
            del self.by_tenant[tenant]
