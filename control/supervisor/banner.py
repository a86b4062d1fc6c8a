"""What `make up` prints once everything runs: what each process is, where to look, how to call."""

from collections.abc import Sequence
from pathlib import Path

from control.supervisor.children import ChildSpec
from control.supervisor.credentials import Credentials
from control.supervisor.plan import DEMO_MODEL, HOST, Addresses


def describe(
    specs: Sequence[ChildSpec],
    addresses: Addresses,
    credentials: Credentials,
    state: Path,
    took_s: float,
) -> str:
    """The whole text, for a terminal of 100 columns or more."""
    width = max(len(spec.name) for spec in specs)
    keys = "\n".join(f"    {key.tier}  {key.tenant:<14} {key.key}" for key in credentials.keys)
    lines = [
        "",
        *(f"  {spec.name:<{width}}  {spec.what}" for spec in specs),
        "",
        f"  Dashboard  http://{HOST}:{addresses.web}/          sign in as {credentials.username}",
        f"  Admin      http://{HOST}:{addresses.web}/admin/    password {credentials.password}",
        f"  Gateway    http://{HOST}:{addresses.gateway}/v1         any OpenAI client works, one key per tier:",
        keys,
        f"  Operations http://{HOST}:{addresses.gateway_ops}/metrics    /readyz, /livez",
        f"  Logs       {state / 'logs'}",
        "",
        *_example(addresses, credentials),
        f"  Running after {took_s:.1f} s. Ctrl-C ends all of it.",
    ]
    return "\n".join(lines)


def _example(addresses: Addresses, credentials: Credentials) -> list[str]:
    if not addresses.engines or not credentials.keys:
        return [
            f"  No engine was started: add yours at http://{HOST}:{addresses.web}/admin/ (pools, backends).",
            "",
        ]
    body = f'{{"model":"{DEMO_MODEL}","stream":true,"messages":[{{"role":"user","content":"hello"}}]}}'
    return [
        "  Try it:",
        f"    curl -N http://{HOST}:{addresses.gateway}/v1/chat/completions \\",
        f"      -H 'Authorization: Bearer {credentials.keys[0].key}' \\",
        f"      -H 'Content-Type: application/json' -d '{body}'",
        "",
    ]
