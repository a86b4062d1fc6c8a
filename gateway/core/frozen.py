"""Makes frozen values at the price of ordinary ones. Decides nothing.

A frozen dataclass writes each of its fields through `object.__setattr__`, so that one with seven fields costs more than
all the arithmetic of a refusal. `maker(Kind)` is a function with the signature of `Kind` that fills an object of a
twin class, which has the same slots and is not frozen, and turns it into a `Kind` as its last step. The result can't be
told from `Kind(...)`: same class, same equality, as immutable; it costs about a seventh. For the few values that
are made for every event; everything else calls the class.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """A quick way to call `kind`, a frozen and slotted dataclass without code of its own at construction.

    Raises:
        TypeError: where `kind` is anything else.
    """
    if not (isinstance(kind, type) and is_dataclass(kind) and "__slots__" in vars(kind)):
        raise TypeError(f"kind: must be a slotted dataclass, not {kind!r}")
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"kind: {kind.__name__} has a __post_init__, which would be passed over")
    twin = type(kind.__name__, (), {"__slots__": vars(kind)["__slots__"]})
    names: dict[str, object] = {"_twin": twin, "_kind": kind}
    heads: list[str] = []
    for field in fields(kind):
        if field.default_factory is not MISSING or not field.init:
            raise TypeError(f"{field.name}: a maker knows plain fields only")
        if field.kw_only and "*" not in heads:
            heads.append("*")
        names[f"_{field.name}"] = field.default
        heads.append(field.name if field.default is MISSING else f"{field.name}=_{field.name}")
    body = "".join(f"    made.{field.name} = {field.name}\n" for field in fields(kind))
    source = f"def make({', '.join(heads)}):\n    made = _twin()\n{body}    made.__class__ = _kind\n    return made\n"
    exec(source, names)  # noqa: S102  # as dataclasses themselves do: names of fields, nothing from outside
    made: Callable[P, T] = names["make"]  # type: ignore[assignment]  # what was just defined
    return made
