import math

import pytest

from control.engines.base import (
    MAX_PAGE_BYTES,
    Source,
    Table,
    Telemetry,
    Total,
    count,
    label,
    only_model,
    parse,
    product,
    ratio,
    total,
)

WANTED = frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"a 1", {"a": {"": 1.0}}),
        (b"a 1 1700000000", {"a": {"": 1.0}}),
        (b'a{x="1"} 2.5', {"a": {'x="1"': 2.5}}),
        (b'a{x="} 9"} 2', {"a": {'x="} 9"': 2.0}}),
        (b'a{x="1" 2', {}),
        (b"a NaN", {}),
        (b"a +Inf", {}),
        (b"a -1", {}),
        (b"a", {}),
        (b"a ", {}),
        (b"a x", {}),
        (b"# a 1", {}),
        (b"c 1", {}),
        (b"\xff\xfe a 1", {}),
        (b"<html><body>a 1</body></html>", {}),
    ],
)
def test_one_bad_line_loses_one_line(line: bytes, expected: dict[str, dict[str, float]]) -> None:
    page = line + b"\nb 7\n"
    assert parse(page, WANTED) == {**expected, "b": {"": 7.0}}


def test_a_series_given_twice_counts_once_and_the_later_wins() -> None:
    assert parse(b"a 1\na 2", WANTED) == {"a": {"": 2.0}}


def test_a_huge_page_is_read_up_to_its_bound() -> None:
    page = b"c 1\n" * (MAX_PAGE_BYTES // 4) + b"a 1\n"
    assert parse(page, WANTED) == {}


def test_endless_series_stop_at_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control.engines.base.MAX_SAMPLES", 10)
    page = b"".join(b'a{n="%d"} 1\n' % i for i in range(100))
    assert len(parse(page, WANTED)["a"]) == 10


def test_the_first_name_that_is_present_wins() -> None:
    source = Source(("a", "b"))
    assert source.read(parse(b"b 1\na 2", WANTED)) == 2
    assert source.read(parse(b"b 1", WANTED)) == 1
    assert source.read({}) is None


def test_engines_are_added_up_and_utilisation_takes_the_worst() -> None:
    samples = parse(b'a{engine="0"} 3\na{engine="1"} 4\nb{engine="0"} 0.2\nb{engine="1"} 0.9', WANTED)
    assert Source(("a",)).read(samples) == 7
    assert Source(("b",), worst=True).read(samples) == 0.9


def test_a_source_reads_only_series_with_its_labels() -> None:
    samples = parse(b'a{type="x"} 3\na{type="y"} 4', WANTED)
    assert Source(("a",), (("type", "y"),)).read(samples) == 4
    assert Source(("a",), (("type", "z"),)).read(samples) is None


def test_implausible_values_are_unknown() -> None:
    assert count(None) is None
    assert count(1e9) is None
    assert count(3.0) == 3
    assert ratio(None) is None
    assert ratio(97.0) is None
    assert ratio(1.01) == 1.0
    assert product(2, 3) == 6
    assert product(2, 0) is None
    assert product(2, None) is None
    assert product(2, 1e12) is None


def test_a_label_is_found_by_its_whole_name() -> None:
    assert label('block_size="32",num="4"', "num") == "4"
    assert label('effective_block_size="16",block_size="32"', "block_size") == "32"
    assert label('x="1"', "y") is None


def test_a_total_needs_count_and_sum() -> None:
    assert total(("a",), {"a_count": {"": 2.0}, "a_sum": {"": 3.0}}) == Total(2.0, 3.0)
    assert total(("a",), {"a_count": {"": 2.0}}) is None
    assert total(("z", "a"), {"a_count": {"x": 1.0, "y": 2.0}, "a_sum": {"x": 1.0, "y": 1.0}}) == Total(
        3.0, 2.0
    )


def test_series_of_another_model_are_left_out_where_ours_is_named() -> None:
    samples = {"a": {'model_name="m"': 1.0, 'model_name="n"': 2.0}, "b": {"": 5.0}}
    assert only_model(samples, ["m"]) == {"a": {'model_name="m"': 1.0}, "b": {"": 5.0}}


def test_a_table_reads_what_its_engine_tells_and_leaves_the_rest_unknown() -> None:
    table = Table(running=Source(("a",)), kv_ratio=Source(("b",), worst=True))
    assert table.read(parse(b"a 3\nb 0.5", table.wanted)) == Telemetry(
        running=3, kv_ratio=0.5, kv_source="gauge"
    )
    empty = table.read({})
    assert empty.is_empty
    assert empty == Telemetry()


def test_known_fields_replace_those_of_the_table() -> None:
    assert Table().read({}, max_seqs=4).max_seqs == 4


def test_finite_numbers_whose_sum_is_not_are_unknown() -> None:
    """Two series of 10^308 each: the frame must never hold what JSON can't say."""
    two = {'e="0"': 1e308, 'e="1"': 1e308}
    assert Source(("n",)).read({"n": two}) is None
    assert total(("t",), {"t_count": two, "t_sum": {"": 1.0}}) is None
    assert total(("t",), {"t_count": {"": 1.0}, "t_sum": two}) is None


def test_no_number_that_is_told_is_ever_not_finite() -> None:
    table = Table(running=Source(("a",)), kv_ratio=Source(("b",)))
    for text in (b"nan", b"inf", b"-inf", b"-3", b"1e999"):
        told = table.read(parse(b"a " + text + b"\nb " + text, table.wanted))
        assert all(
            v is None or not isinstance(v, float) or math.isfinite(v) for v in (told.running, told.kv_ratio)
        )
        assert told.is_empty
