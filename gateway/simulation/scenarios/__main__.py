"""`python -m gateway.simulation.scenarios`: run the scenarios, print the table, say with the exit status if it holds."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gateway.simulation.scenarios import anchors, report
from gateway.simulation.scenarios.cases import Case, Outcome
from gateway.simulation.scenarios.measuring import Book, unloaded_cases
from gateway.simulation.scenarios.pool import PROCESSES, run_all
from gateway.simulation.scenarios.report import Line
from gateway.simulation.scenarios.sweep import sweep
from gateway.simulation.scenarios.targets import Target, all_targets, jump_control_target

QUICK_SEEDS = (101, 102, 103)
FULL_SEEDS = tuple(range(101, 111))
MARKER = "<!-- what follows is written by the command: --write docs/scenarios.md -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for. 0: all musts hold, all negative controls fail, all anchors are near."""
    options = _parse(arguments)
    if options.sweep is not None:
        sweep(tuple(options.sweep))
        return 0
    seeds = options.seeds or (FULL_SEEDS if options.full else QUICK_SEEDS)
    targets = [target for target in all_targets() if _is_wanted(target, options.only)]
    control = jump_control_target()
    cases = {case for target in targets for case in target.cases(seeds)}
    cases |= set(unloaded_cases("unloaded", seeds))
    if not options.only:
        cases |= anchors.cases() | {control.case.seeded(seed) for seed in seeds}
    book = Book(_run(cases, options.processes))
    lines = [report.line(target, book, seeds) for target in targets]
    if not options.only:
        lines.append(report.jump_control(control, book, seeds))
        lines += [report.anchor_line(finding) for finding in anchors.findings(book)]
    seeds_told = ", ".join(map(str, seeds))
    printed = f"Seeds {seeds_told}; {len(cases)} runs.\n\n{report.text(lines)}\n\n{_summary(lines)}"
    sys.stdout.write(printed)
    if options.write is not None:
        _write(options.write, printed, sys.argv[1:] if arguments is None else arguments)
    return 1 if any(line.complaint is not None for line in lines) else 0


def _summary(lines: Sequence[Line]) -> str:
    complaints = [line for line in lines if line.complaint is not None]
    short = sum(line.is_short_of_aim and line.complaint is None for line in lines)
    told = [f"{len(lines)} lines, {len(complaints)} with a complaint, {short} short of their aim."]
    told += [
        f"{line.cells[0]}: {line.cells[1]}: {line.complaint}: {line.cells[4]}, {line.cells[2]}"
        for line in complaints
    ]
    return "\n".join(told) + "\n"


def _write(path: Path, printed: str, arguments: Sequence[str]) -> None:
    """Put the table behind the document's marker, with the date and the command."""
    head, marker, _ = path.read_text().partition(MARKER)
    if not marker:
        raise SystemExit(f"{path} has no line {MARKER}")
    today = datetime.now(UTC).date().isoformat()
    command = " ".join(["python -m gateway.simulation.scenarios", *arguments])
    path.write_text(f"{head}{MARKER}\n\n{today}, `{command}`. {printed}")


def _run(cases: set[Case], processes: int) -> dict[Case, Outcome]:
    outcomes: dict[Case, Outcome] = {}
    for case, result in run_all(cases, processes):
        outcomes[case] = result
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(outcomes)}/{len(cases)} ")
    if sys.stderr.isatty():
        sys.stderr.write("\r          \r")
    return outcomes


def _is_wanted(target: Target, only: Sequence[str] | None) -> bool:
    return not only or any(word in f"{target.case.profile}/{target.case.play}" for word in only)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway.simulation.scenarios", description=__doc__)
    parser.add_argument("--full", action="store_true", help="ten seeds instead of three")
    parser.add_argument("--seeds", type=_seeds, help="such as 1-5 or 101,103")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="only targets whose profile/play contains a word"
    )
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this document too")
    parser.add_argument(
        "--sweep",
        nargs="*",
        metavar="PREFIX",
        help="measure the static limits again and write baselines.json",
    )
    return parser.parse_args(arguments)


def _seeds(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


if __name__ == "__main__":
    sys.exit(main())
