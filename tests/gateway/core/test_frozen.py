"""What a maker makes can't be told from what the class makes."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from gateway.core.commands import Decision
from gateway.core.events import Arrived
from gateway.core.frozen import maker
from gateway.core.vocabulary import Account


def test_a_made_value_is_the_same_as_a_constructed_one():
    make = maker(Decision)
    made, known = make("size", 2.0, 1.0, 3, 0.5), Decision("size", 2.0, 1.0, 3, 0.5)
    assert type(made) is Decision
    assert (made, hash(made), repr(made)) == (known, hash(known), repr(known))
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == known  # noqa: S301  # our own
    assert make("kv", 1.0, 1.0, 0, 0.0, account=Account.KV).account is Account.KV


def test_a_made_value_can_not_be_changed():
    made = maker(Decision)("size", 2.0, 1.0, 3, 0.5)
    with pytest.raises(FrozenInstanceError):
        made.value = 3.0
    with pytest.raises(FrozenInstanceError):
        del made.value


def test_keywords_and_defaults_are_those_of_the_class():
    make = maker(Arrived)
    asked = {"ticket": "t", "pool": "chat", "tier": 1, "tenant": "ada", "prompt_tokens": 3}
    assert make(**asked) == Arrived(**asked)
    assert make(**asked, weight=2.0).weight == 2.0
    with pytest.raises(TypeError, match="positional"):
        make("t", "chat", 1, "ada", 3)
    with pytest.raises(TypeError, match="prompt_tokens"):
        make(ticket="t", pool="chat", tier=1, tenant="ada")


@dataclass(frozen=True)
class Loose:
    number: int


@dataclass(frozen=True, slots=True)
class Checked:
    number: int

    def __post_init__(self) -> None:
        """Never called by a maker."""


@dataclass(frozen=True, slots=True)
class Listed:
    numbers: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("kind", "why"),
    [(Loose, "slotted"), (int, "slotted"), (len, "slotted"), (Checked, "post_init"), (Listed, "numbers")],
)
def test_what_a_maker_can_not_make_is_refused(kind, why):
    with pytest.raises(TypeError, match=why):
        maker(kind)
