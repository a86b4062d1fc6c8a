"""One JSON line per record, whatever it quotes."""

import json
import logging
import sys

from gateway import logs


def a_line(message: str, *arguments: object, fault: bool = False) -> str:
    record = logging.LogRecord("sluicegate.x", logging.WARNING, "file", 1, message, arguments, None)
    if fault:
        try:
            raise ValueError("why")  # noqa: TRY301  # a trace is what is wanted
        except ValueError:
            record.exc_info = sys.exc_info()
    return logs.JsonLines().format(record)


def test_a_record_is_one_line_even_with_line_ends_in_it():
    line = a_line("evil\r\nname %s", "a\nb")
    assert "\n" not in line
    assert json.loads(line)["message"] == "evil\r\nname a\nb"


def test_a_trace_is_part_of_its_line():
    line = a_line("broken", fault=True)
    assert "\n" not in line
    assert "ValueError: why" in json.loads(line)["trace"]


def test_everything_is_sent_there(capsys):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.set_up("WARNING")
        logging.getLogger("sluicegate.x").warning("hello")
        assert json.loads(capsys.readouterr().err)["level"] == "WARNING"
    finally:
        root.handlers[:], root.level = before, level
