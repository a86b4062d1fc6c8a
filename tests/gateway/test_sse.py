"""The event reader: every line end, every cut, and bytes that must come out as they went in."""

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sse import HOLD_LIMIT, INSPECT_LIMIT, Dialect, EventReader, Usage, read_usage
from tests.fakes.backend import DONE, chat_chunk, event, usage_chunk

ROLE = chat_chunk({"role": "assistant", "content": ""})
WORDS = [
    chat_chunk({"content": text}) for text in ("Grüße ", "你好 ", "🌊🚪 ", "a\u2028b", 'say \\"usage\\": {}')
]
END = chat_chunk({}, finish="stop")
USAGE = usage_chunk(5, 4)
ENDINGS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


def stream(ending: bytes = b"\n", *, usage: bool = True) -> bytes:
    whole = b"".join([ROLE, *WORDS, END, *([USAGE] if usage else []), DONE])
    return whole.replace(b"\n", ending)


def read(data: bytes, cuts: list[int], **options: object) -> tuple[EventReader, bytes]:
    reader = EventReader(**options)  # type: ignore[arg-type]
    out, begin = [], 0
    for cut in [*sorted(cuts), len(data)]:
        out.append(reader.feed(data[begin:cut]))
        begin = cut
    out.append(reader.finish())
    return reader, b"".join(out)


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("cut_usage", [False, True])
def test_a_stream_cut_at_every_byte_comes_out_as_it_went_in_but_for_the_usage_event(ending, cut_usage):
    """A14."""
    data = stream(ending)
    expected = stream(ending, usage=not cut_usage)
    for cut in range(len(data) + 1):
        reader, out = read(data, [cut], cut_usage=cut_usage)
        assert out == expected, f"cut at {cut}"
        assert (reader.usage, reader.done, reader.content_events) == (Usage(5, 4), True, len(WORDS))


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_stream_in_single_bytes_tells_the_same_as_in_one_piece(ending):
    """A14."""
    data = stream(ending)
    for cut_usage in (False, True):
        single, out = read(data, list(range(len(data))), cut_usage=cut_usage)
        whole, out_whole = read(data, [], cut_usage=cut_usage)
        assert out == out_whole == stream(ending, usage=not cut_usage)
        assert single.content_events == whole.content_events == len(WORDS)
        assert single.data_events == whole.data_events == len(WORDS) + 3
        assert single.usage == whole.usage


@given(
    st.lists(st.integers(0, len(stream())), max_size=12), st.sampled_from([*ENDINGS.values()]), st.booleans()
)
@settings(max_examples=300, deadline=None)
def test_any_cuts_give_the_same_bytes_and_the_same_account(cuts, ending, cut_usage):
    """A14."""
    data = stream(ending)
    cuts = [min(cut, len(data)) for cut in cuts]
    reader, out = read(data, cuts, cut_usage=cut_usage)
    assert out == stream(ending, usage=not cut_usage)
    assert reader.usage == Usage(5, 4)
    assert reader.content_events == len(WORDS)
    assert reader.done


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8), st.booleans())
@settings(max_examples=300, deadline=None)
def test_bytes_that_are_no_events_at_all_pass_untouched(data, cuts, cut_usage):
    cuts = [min(cut, len(data)) for cut in cuts]
    _, out = read(data, cuts, cut_usage=cut_usage)
    assert out == data


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"data: 1", b"data:", b":", b"x", b"\xef\xbb\xbf"]), max_size=30),
    st.integers(0, 30),
)
@settings(max_examples=500, deadline=None)
def test_mixed_line_ends_are_counted_the_same_wherever_the_cut_falls(pieces, cut):
    data = b"".join(pieces)
    whole, _ = read(data, [])
    parts, out = read(data, [min(cut, len(data))])
    single, _ = read(data, list(range(len(data))))
    assert out == data
    assert whole.data_events == parts.data_events == single.data_events


def test_only_the_first_usage_event_is_left_out_and_nothing_else():
    reader, out = read(USAGE + WORDS[0] + USAGE + DONE, [], cut_usage=True)
    assert out == WORDS[0] + USAGE + DONE
    assert reader.usage == Usage(5, 4)


def test_usage_inside_a_chunk_with_choices_is_read_but_stays():
    chunk = event({"choices": [{"index": 0, "delta": {"content": "x"}}], "usage": {"prompt_tokens": 1}})
    reader, out = read(chunk, [], cut_usage=True)
    assert out == chunk
    assert reader.usage == Usage(1, 0)
    assert reader.content_events == 1


def test_a_null_usage_member_is_no_usage():
    reader, out = read(event({"choices": [{"delta": {"content": "x"}}], "usage": None}), [], cut_usage=True)
    assert reader.usage is None
    assert reader.content_events == 1
    assert b"usage" in out


def test_the_first_data_event_is_known_and_comments_do_not_count():
    reader = EventReader()
    reader.feed(b": keep-alive\n\n")
    assert reader.data_events == 0
    reader.feed(ROLE)
    assert (reader.data_events, reader.content_events) == (1, 0)
    reader.feed(DONE)
    assert (reader.data_events, reader.done) == (1, True)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"content": None, "reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"refusal": "no"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}],
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"content": '"'},
    ],
)
def test_everything_the_model_generates_counts_as_output(delta):
    for spaced in (False, True):
        payload = json.dumps(
            {"choices": [{"index": 0, "delta": delta}]}, separators=None if spaced else (",", ":")
        )
        reader, _ = read(b"data: " + payload.encode() + b"\n\n", [])
        assert reader.content_events == 1


@pytest.mark.parametrize(
    "delta", [{}, {"role": "assistant", "content": ""}, {"role": "assistant", "content": None}]
)
def test_chunks_without_output_do_not_count(delta):
    reader, _ = read(chat_chunk(delta), [])
    assert (reader.data_events, reader.content_events) == (1, 0)


def test_completions_count_their_text():
    reader, out = read(
        event({"choices": [{"text": "a"}]}) + event({"choices": [{"text": ""}]}) + USAGE + DONE,
        [],
        dialect=Dialect.COMPLETIONS,
        cut_usage=True,
    )
    assert reader.content_events == 1
    assert USAGE not in out


def test_responses_report_usage_in_their_last_event_however_large_it_is():
    completed = {
        "type": "response.completed",
        "response": {
            "output": "x" * (2 * HOLD_LIMIT),
            "error": None,
            "usage": {"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}},
        },
    }
    data = b"event: response.output_text.delta\n" + event(
        {"type": "response.output_text.delta", "delta": "x"}
    )
    data += b"event: response.completed\n" + event(completed)
    reader, out = read(data, list(range(0, len(data), 1000)), dialect=Dialect.RESPONSES)
    assert out == data
    assert (reader.usage, reader.content_events, reader.error) == (Usage(9, 3, 4), 1, None)


def test_messages_report_the_prompt_first_and_the_output_last():
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 12, "output_tokens": 1}}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    reader, _ = read(event(start) + event(delta) + event(last), [], dialect=Dialect.MESSAGES)
    assert (reader.usage, reader.content_events) == (Usage(12, 7), 1)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (event({"error": {"message": "full", "type": "ServiceUnavailableError", "code": 503}}), 503),
        (event({"error": {"message": "full", "code": "503"}}), 503),
        (event({"error": {"message": "boom", "code": "internal"}}), None),
        (event({"error": "boom"}), None),
        (event({"type": "error", "error": {"type": "overloaded_error", "message": "full"}}), 503),
        (event({"type": "error", "code": "server_error", "message": "boom"}), None),
        (
            event(
                {
                    "type": "response.failed",
                    "response": {"error": {"code": "server_error", "message": "boom"}},
                }
            ),
            None,
        ),
        (b'error: {"error": {"code": 500, "message": "boom"}}\n\n', 500),
    ],
)
def test_error_events_name_their_status_where_the_engine_does(data, code):
    reader, out = read(data + DONE, [])
    assert reader.error is not None
    assert reader.error.code == code
    assert reader.error.message in {"full", "boom"}
    assert reader.content_events == 0
    assert out == data + DONE


def test_model_output_that_speaks_of_errors_and_usage_is_no_error():
    text = json.dumps({"error": {"code": 503}, "usage": {"prompt_tokens": 1}})
    reader, _ = read(chat_chunk({"content": text}), [], cut_usage=True)
    assert (reader.error, reader.usage, reader.content_events) == (None, None, 1)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"usage": {"prompt_tokens": "x"}}',
        b'{"usage": [',
        b'{"usage": {"prompt_tokens": -5}}',
        b'"usage"',
        b'{"error": 7}',
    ],
)
def test_malformed_usage_is_relayed_and_ignored(payload):
    data = b"data: " + payload + b"\n\n"
    reader, out = read(data + WORDS[0], [])
    assert out == data + WORDS[0]
    assert reader.usage in (None, Usage())
    assert reader.content_events == 1


@pytest.mark.parametrize("cut_usage", [False, True])
def test_a_two_mebibyte_line_passes_and_usage_after_it_is_found(cut_usage):
    """A15."""
    big = chat_chunk({"content": "x" * (2 << 20)})
    data = ROLE + big + USAGE + DONE
    reader, out = read(data, list(range(0, len(data), 16384)), cut_usage=cut_usage)
    assert out == ROLE + big + (b"" if cut_usage else USAGE) + DONE
    assert (reader.usage, reader.content_events, reader.truncated) == (Usage(5, 4), 1, True)


def test_an_endless_line_is_not_kept():
    """A15."""
    reader = EventReader(cut_usage=True)
    piece = b"x" * 65536
    reader.feed(b"data: ")
    passed = sum(len(reader.feed(piece)) for _ in range(100))
    assert passed >= 100 * len(piece)
    assert len(reader._pending) <= 3


def test_bytes_are_held_only_while_an_event_may_have_to_be_left_out():
    reader = EventReader(cut_usage=True)
    assert reader.feed(ROLE[:30]) == b""
    assert reader.at_boundary
    assert reader.feed(ROLE[30:]) == ROLE
    reader.feed(USAGE)
    assert reader.feed(DONE[:5]) == DONE[:5]
    assert not reader.at_boundary


def test_the_boundary_is_known_where_bytes_are_not_held():
    reader = EventReader()
    assert reader.feed(ROLE[:30]) == ROLE[:30]
    assert not reader.at_boundary
    reader.feed(ROLE[30:])
    assert reader.at_boundary


def test_collected_payloads_are_those_of_the_events():
    reader = EventReader(collect=True)
    reader.feed(ROLE + WORDS[0] + b"data: {\ndata: }\n\n" + DONE)
    assert reader.take_payloads() == [ROLE[6:-2], WORDS[0][6:-2], b"{\n}"]
    assert reader.take_payloads() == []


def test_a_collected_event_beyond_the_limit_is_marked():
    reader = EventReader(collect=True)
    for _ in range(INSPECT_LIMIT // (1 << 20) + 1):
        reader.feed(b"data: " + b"x" * (1 << 20))
    assert reader.truncated


def test_an_event_without_its_empty_line_counts_at_an_orderly_end():
    reader, out = read(ROLE + b"data: [DONE]", [], cut_usage=True)
    assert out == ROLE + b"data: [DONE]"
    assert reader.done


def test_a_held_event_can_be_dropped_by_not_finishing():
    reader = EventReader(cut_usage=True)
    assert reader.feed(ROLE + WORDS[0][:20]) == ROLE
    assert reader.at_boundary


def test_a_byte_order_mark_before_the_first_event_is_no_obstacle():
    reader, out = read(b"\xef\xbb\xbf" + WORDS[0] + DONE, [])
    assert (reader.data_events, reader.done) == (1, True)
    assert out.startswith(b"\xef\xbb\xbf")


def test_usage_of_a_whole_answer_is_read():
    body = msgspec.json.encode(
        {"choices": [{"message": {}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    )
    assert read_usage(body) == Usage(3, 2)
    assert read_usage(b'{"usage": 5}') is None
    assert read_usage(b"{") is None
    assert read_usage(b"{}") is None


def test_random_streams_of_many_events_keep_their_count():
    dice = random.Random(7)  # noqa: S311  # a seed, not a secret
    for _ in range(50):
        n = dice.randrange(1, 40)
        data = b"".join(chat_chunk({"content": "w" * dice.randrange(1, 50)}) for _ in range(n)) + USAGE + DONE
        cuts = [dice.randrange(len(data)) for _ in range(dice.randrange(30))]
        reader, out = read(data, cuts, cut_usage=True)
        assert reader.content_events == n
        assert out == data.replace(USAGE, b"")
