import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from control import selectors

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installed")]


def run(*words: str) -> str:
    out = StringIO()
    call_command("override", *words, stdout=out)
    return out.getvalue()


def test_an_override_is_set_listed_and_released_with_an_audit_row_each(audited) -> None:
    backend = selectors.backends()[0].name
    with audited(1):
        said = run("--kind=breaker", f"--target={backend}", "--value=open", "--reason=drill", "--seconds=60")
    (row,) = selectors.overrides_in_force()
    assert re.fullmatch(rf"{row.key} until \d\d:\d\d:\d\d UTC\n", said)
    assert f"breaker open on {backend} until" in run()
    with audited(1):
        assert run(f"--release={row.key}") == "released\n"
    assert run() == "no override is in force\n"
    assert run(f"--release={row.key}") == "it had ended already\n"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--kind=breaker", "--target=nobody", "--value=open", "--reason=drill"], "nobody"),
        (["--kind=breaker", "--value=open", "--reason="], "reason"),
        (["--kind=breaker", "--value=open", "--reason=drill", "--seconds=90000"], "24 hours"),
        (["--release=nothing"], "nothing"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_changes(words: list[str], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        run(*words)
    assert selectors.overrides_in_force() == ()
