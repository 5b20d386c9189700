"""`split_stream` and its checkers: the decision, the replay of the chunks, errors and closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.errors import MessagesError, OptionError
from langgraph_patch.streaming import (
    Turn,
    asplit_stream,
    first_chunk_checker,
    full_stream_checker,
    split_stream,
)
from support.streams import LAST, REST, START, Source, live, same, say, think

CHECKERS = (first_chunk_checker, full_stream_checker, live)

TEXT = say([{"type": "text", "text": "Let me see.", "index": 0}])
BESIDE = say(additional_kwargs={"reasoning_content": "hm"})
SEARCH = {"type": "web_search_call", "id": "w1", "status": "completed"}
COMPUTER = {"type": "computer_call", "call_id": "c1", "action": {"type": "screenshot"}}
FUNCTION = say(additional_kwargs={"function_call": {"name": "t", "arguments": ""}})


def phase(name: str, text: str = "", **fields: Any) -> AIMessageChunk:
    """The chunk with which OpenAI's Responses API begins a text."""
    return say([{"type": "text", "text": text, "index": 0, **(fields or {"phase": name})}])


# chunks, and what each of CHECKERS decides: n: True after n chunks, -n: False after n.
STREAMS: dict[str, tuple[list[AIMessageChunk], tuple[int, int, int]]] = {
    "OpenAI, a call first": ([say(), START, REST, LAST], (2, 2, 2)),
    "OpenAI, text": ([say(), say("Good "), say("day."), say(), LAST], (-2, -5, -2)),
    "Claude, text and then a call": ([say([]), TEXT, START, REST, LAST], (-2, 3, -2)),
    "reasoning and then a call": ([say(), think("hm"), START, LAST], (3, 3, -2)),
    "reasoning and then text": ([think("hm"), TEXT, LAST], (-2, -3, -1)),
    "reasoning beside the content": ([BESIDE, START, REST, LAST], (2, 2, -1)),
    "v1 reasoning": ([say([{"type": "reasoning", "reasoning": "hm"}]), START], (2, 2, -1)),
    "Bedrock's reasoning": ([say([{"type": "reasoning_content"}]), START], (2, 2, -1)),
    "hidden reasoning": ([say([{"type": "redacted_thinking", "data": "x"}]), START], (2, 2, -1)),
    "empty first chunks": ([say(), say([]), say([""]), START, LAST], (4, 4, 4)),
    "white space and then a call": ([say("\n\n"), START, REST, LAST], (2, 2, 2)),
    "a whole message": ([AIMessage("Hi."), say("unread")], (-1, -1, -1)),
    "empty chunks only": ([say(), say(), LAST], (-3, -3, -3)),
    "nothing": ([], (0, 0, 0)),
    # calls that LangChain does not list
    "a function call": ([say(), FUNCTION, LAST], (2, 2, 2)),
    "a computer": ([say([COMPUTER]), LAST], (1, 1, 1)),
    "a computer, v1": ([say([{"type": "non_standard", "value": COMPUTER}])], (1, 1, 1)),
    "a computer, v0": ([say(additional_kwargs={"tool_outputs": [COMPUTER]})], (1, 1, 1)),
    "a shell": ([say([{"type": "local_shell_call"}])], (1, 1, 1)),
    "a search by the provider": ([say([SEARCH]), LAST], (-2, -2, -2)),
    # OpenAI's phases
    "commentary, then a call": ([phase("commentary"), say("Hm"), START, LAST], (3, 3, -2)),
    "both": (
        [phase("commentary"), say("Hm."), phase("final_answer"), say([" "]), say("Yes"), LAST],
        (-5, -5, -2),
    ),
    "the final answer, v1": (
        [phase("", "Yes", extras={"phase": "final_answer"}), LAST],
        (-1, -1, -1),
    ),
    "no phase": ([phase("", "Yes", phase=7, extras="x"), LAST], (-1, -2, -1)),
    "a phase behind it": (
        [say([*phase("", "Yes", phase=7).content, *phase("final_answer").content]), LAST],
        (-1, -1, -1),
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_each_checker_decides_as_the_table_says_and_no_chunk_is_lost(name):
    """Answer and number of chunks read; then the same chunk objects, once each, to the end."""
    chunks, expected = STREAMS[name]
    for checker, number in zip(CHECKERS, expected, strict=True):
        source = Source(chunks)
        answer, replay = split_stream(source, checker=checker)
        assert (answer, source.read) == (number > 0, abs(number)), checker
        assert same(list(replay), chunks)
        assert not source.open


def test_a_decision_is_final_and_frees_the_chunks():
    """The checker is not asked again, and a caller that keeps a turn keeps no chunk alive."""
    turns: list[Turn] = []

    def at_two(turn: Turn) -> bool | None:
        turns.append(turn)
        return turn.called if len(turn.chunks) == 2 else None

    chunks = [say("a"), START, REST, LAST]
    answer, replay = split_stream(Source(chunks), checker=at_two)
    assert answer is True
    assert same(list(replay), chunks)
    assert len(turns) == 2
    (turn,) = set(turns)
    assert turn.chunks == []
    turn.end()
    assert (turn.answer, turn.ended, len(turns)) == (True, True, 2)
    turn = Turn(lambda turn: turn.called)
    for chunk in (say("a"), START):
        turn.take(chunk)
    assert (turn.called, turn.answer) == (True, False)


def test_a_checker_that_returns_anything_else_is_a_clear_error(io):
    """Also what is true or false."""
    source = Source([say("a")])
    with pytest.raises(OptionError, match=r"The checker .* returned 0.*Expected True, False or"):
        io.split(source, checker=lambda _: 0)
    assert not source.open


def test_the_stream_of_a_graph_and_no_checker_are_clear_errors(io):
    """The error names the function for the stream of a graph, and the checkers that there are."""
    with pytest.raises(MessagesError, match=r"got \(AIMessageChunk.*graph is for final_answers"):
        io.split(Source([(say("a"), {"langgraph_node": "model"})]))
    with pytest.raises(OptionError, match=r"checker='full': .* such as full_stream_checker"):
        io.split(Source([say("a")]), checker="full")
    with pytest.raises(OptionError, match=r"checker=None: expected a function of a Turn"):
        io.answers(Source([]), checker=None)


def test_what_the_checker_raises_reaches_the_caller_and_the_source_is_closed(io):
    """An error of the checker is raised at once, not at its place in the stream."""

    def faulty(turn: Turn) -> bool:
        raise LookupError(len(turn.chunks))

    source = Source([say("a"), say("b")])
    with pytest.raises(LookupError) as raised:  # which keeps the frames, so nothing else closes
        io.split(source, checker=faulty)
    assert raised.value.args == (1,)
    assert not source.open


@pytest.mark.parametrize("number", [0, 3])
def test_an_early_exit_closes_the_source(io, number):
    """Whether or not chunks were read or buffered: the stream closes, nothing follows."""
    source = Source([say("a"), START, REST, say(), LAST], ConnectionError("gone"))
    _, chunks = io.split(source)
    for _ in range(number):
        next(chunks)
    assert source.open
    chunks.close()
    chunks.close()
    assert not source.open
    assert list(chunks) == []


@pytest.mark.parametrize("checker", [first_chunk_checker, full_stream_checker])
def test_an_error_of_the_source_reaches_the_reader_in_its_place(io, checker):
    """Before or after the decision: first the chunks that came, then the error, then the end."""
    chunks, error = [say(), say("Good "), say("mor")], ConnectionError("gone")
    answer, replay = io.split(Source(chunks, error), checker=checker)
    assert answer is False
    assert same([next(replay) for _ in chunks], chunks)
    with pytest.raises(ConnectionError) as raised:
        next(replay)
    assert raised.value is error
    assert list(replay) == []


async def test_a_cancelled_decision_is_none():
    """A client that goes away while the decision is pending gets its cancellation."""

    async def hanging() -> AsyncIterator[AIMessageChunk]:
        await asyncio.sleep(60)
        yield START

    task = asyncio.create_task(asplit_stream(hanging()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["x" * 300, {"a": 1}, AIMessage("x"), None])
def test_a_value_that_is_no_stream_is_a_clear_error(io, wrong):
    """The value is quoted, and what is expected is named."""
    for function, expected in (
        (io.split, "the chunks of one turn"),
        (io.answers, "the stream of a graph"),
    ):
        with pytest.raises(MessagesError) as raised:
            function(wrong)
        cut = repr(wrong) if len(repr(wrong)) <= 200 else f"{wrong!r:.199}…"
        assert str(raised.value) == f"Expected {expected}, got {cut}."
