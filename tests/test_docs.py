"""README and docs say what is there."""

import re
from pathlib import Path

from control.supervisor import banner, plan
from control.supervisor.credentials import Credentials, DemoKey

ROOT = Path(__file__).parents[1]
STATE = Path("/srv/sluicegate/var")


def printed() -> list[str]:
    """What `make up` prints on the usual ports."""
    addresses = plan.Addresses(
        plan.GATEWAY_PORT,
        plan.GATEWAY_OPS_PORT,
        plan.WEB_PORT,
        (plan.ENGINE_PORT, plan.ENGINE_PORT + 1),
        STATE,
    )
    valkey = plan.valkey_spec("valkey-server", addresses, STATE)
    traffic = plan.traffic_spec(addresses, STATE)
    specs = [valkey, *plan.engine_specs(addresses), *plan.service_specs(addresses, STATE), traffic]
    tenants = (("P0", "support-chat"), ("P1", "code-agent"), ("P2", "report-batch"))
    keys = tuple(DemoKey(tier, tenant, "sg_live_...") for tier, tenant in tenants)
    text = banner.describe(specs, addresses, Credentials("operator", "...", keys), STATE, 5.0)
    return text.replace(str(STATE.parent), "...").splitlines()


def test_the_readme_shows_what_make_up_prints() -> None:
    shown = (ROOT / "README.md").read_text().splitlines()
    lines = printed()
    for line in lines[1 : next(i for i, line in enumerate(lines) if "Try it" in line)]:
        assert not line or f"    {line}" in shown, line


def test_the_readme_names_commands_that_are_there() -> None:
    rules = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"up", "test", "check", "scenarios", "bench", "fmt", "help"} <= set(rules)
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named = re.findall(
            r"`(?:DEMO=0 )?make\s([a-z-]+)`|^    make ([a-z-]+)$", page.read_text(), re.MULTILINE
        )
        assert {one or other for one, other in named} <= set(rules)
