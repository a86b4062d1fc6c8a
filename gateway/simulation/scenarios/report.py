"""The table as text, and whether all of it holds."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean

from gateway.simulation.scenarios.anchors import Finding
from gateway.simulation.scenarios.measuring import Book, Seeds
from gateway.simulation.scenarios.targets import STATIC_OF_THE_JUMP, Target

HEADINGS = ("scenario", "measure", "must", "aim", "value", "worst seed", "static limit", "no gate", "")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `complaint` says what is wrong with it, if anything."""

    cells: tuple[str, ...]
    complaint: str | None = None
    is_short_of_aim: bool = False


def line(target: Target, book: Book, seeds: Seeds) -> Line:
    """The line of one target."""
    values = target.values(book, seeds)
    value = mean(values)
    control = target.of_none(book, seeds)
    static = target.of_static(book, seeds)
    complaint = None
    if not target.holds(values):
        complaint = "must is missed"
    elif control is not None and target.must is not None and target.meets(control, target.must):
        complaint = "the negative control passes"
    is_short = target.aim is not None and not target.meets(_rounded(value), target.aim)
    verdict = complaint or ("short of aim" if is_short else "ok")
    worst = max(values) if target.at_most else min(values)
    sign = "<= " if target.at_most else ">= "
    cells = (
        _scenario(target),
        target.title,
        "-" if target.must is None else sign + _number(target.must),
        _number(target.aim),
        _number(value),
        _number(worst) if len(values) > 1 else "-",
        _number(static),
        _number(control),
        verdict,
    )
    return Line(cells, complaint, is_short)


def jump_control(target: Target, book: Book, seeds: Seeds) -> Line:
    """The static limit that must fail the prompt jump."""
    values = [book[target.case.seeded(seed)].ratio for seed in seeds]
    must = target.must or 0.0
    complaint = "the negative control passes" if mean(values) >= must else None
    cells = (
        f"gpu jump, static {STATIC_OF_THE_JUMP}",
        target.title,
        f"< {_number(must)}",
        "-",
        _number(mean(values)),
        _number(max(values)),
        "-",
        "-",
        complaint or "ok",
    )
    return Line(cells, complaint)


def anchor_line(finding: Finding) -> Line:
    """The line of one anchor."""
    complaint = None if finding.is_close else "the anchor is off"
    off = finding.found / finding.wanted - 1.0
    cells = (
        "anchor",
        finding.title,
        f"{_number(finding.wanted)} +- {_number(finding.allowed)}",
        "-",
        _number(finding.found),
        f"{100 * off:+.1f} %",
        "-",
        "-",
        complaint or "ok",
    )
    return Line(cells, complaint)


def text(lines: Iterable[Line]) -> str:
    """The table, in Markdown."""
    rows = [HEADINGS, *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    drawn = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(drawn)


def _scenario(target: Target) -> str:
    case = target.case
    parts = [f"{case.profile} {case.play}"]
    if case.gateways > 1:
        parts.append(f"{case.gateways} gateways")
    if case.outer != "fresh":
        parts.append({"late": "gauges 4 s late", "killed": "slow loop killed"}.get(case.outer, case.outer))
    return ", ".join(parts)


def _rounded(value: float) -> float:
    return round(value, 2)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
