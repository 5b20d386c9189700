"""`split_stream`: the decision, the replay of the chunks, errors and closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming import (
    Turn,
    asplit_stream,
    first_chunk_checker,
    full_stream_checker,
    split_stream,
)
from support.streams import LAST, REST, START, Async, Source, Sync, call, live, same, say, think

# name: (chunks, what the first chunk decides and after how many, what the full stream does)
STREAMS: dict[str, tuple[list[AIMessageChunk], tuple[bool, int], tuple[bool, int]]] = {
    "OpenAI, a call first": ([say(), START, REST, LAST], (True, 2), (True, 2)),
    "OpenAI, text": ([say(), say("Good "), say("day."), say(), LAST], (False, 2), (False, 5)),
    "Claude, text and then a call": (
        [say([]), say([{"type": "text", "text": "Let me see.", "index": 0}]), START, REST, LAST],
        (False, 2),
        (True, 3),
    ),
    "reasoning and then a call": (
        [say(), think("hm"), think(", so"), START, REST, LAST],
        (True, 4),
        (True, 4),
    ),
    "reasoning and then text": (
        [think("hm"), say([{"type": "text", "text": "Yes.", "index": 1}]), LAST],
        (False, 2),
        (False, 3),
    ),
    "reasoning beside the content and then a call": (
        [say(additional_kwargs={"reasoning_content": "hm"}), START, REST, LAST],
        (True, 2),
        (True, 2),
    ),
    "empty first chunks": ([say(), say([]), say(""), START, LAST], (True, 4), (True, 4)),
    "white space and then a call": ([say("\n\n"), START, REST, LAST], (True, 2), (True, 2)),
    "text only": ([say("Good "), say("morning."), LAST], (False, 1), (False, 3)),
    "text only, no last chunk": ([say("Good "), say("morning.")], (False, 1), (False, 2)),
    "a call without arguments": ([START, LAST], (True, 1), (True, 1)),
    "text and a call in one chunk": (
        [AIMessageChunk("See:", tool_call_chunks=START.tool_call_chunks), REST, LAST],
        (True, 1),
        (True, 1),
    ),
    "only an unreadable call": ([say(), call("[1]"), LAST], (True, 2), (True, 2)),
    "empty chunks only": ([say(), say(), LAST], (False, 3), (False, 3)),
    "nothing": ([], (False, 0), (False, 0)),
}


@pytest.fixture(params=[Sync, Async])
def io(request: pytest.FixtureRequest) -> Sync | Async:
    """One set of tests for the sync and the async function."""
    return request.param()


# --- the decision ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
async def test_each_checker_answers_and_reads_as_the_table_says(io, name):
    """Answer and number of chunks read; then the same chunk objects, once each, to the end."""
    chunks, first, full = STREAMS[name]
    for checker, expected in ((first_chunk_checker, first), (full_stream_checker, full)):
        source = Source(chunks)
        answer, replay = await io.split(source, checker=checker)
        assert (answer, source.read) == expected
        assert same(await io.all(replay), chunks)
        assert not source.open


async def test_any_callable_is_a_checker_and_no_answer_at_the_end_is_false(io):
    """A function of the turn decides; one that never does so decides False."""

    def two_chunks(turn: Turn) -> bool | None:
        return turn.called if len(turn.chunks) == 2 else None

    source = Source([say("a"), START, REST])
    assert (await io.split(source, checker=two_chunks))[0] is True
    assert source.read == 2
    assert (await io.split(Source([START, REST]), checker=lambda _: None))[0] is False


async def test_full_stream_is_the_default(io):
    """Without a checker text is not taken for an answer before the end."""
    answer, _ = await io.split(Source([say("Let me see."), START]))
    assert answer is True


def test_what_a_checker_sees_of_a_turn():
    """The fields after each chunk, and at the end."""
    seen = []

    def note(turn: Turn) -> None:
        seen.append((len(turn.chunks), turn.called, turn.spoke, turn.wrote, turn.ended))

    assert split_stream([say([]), think("hm"), say(" a"), START, LAST], checker=note)[0] is False
    assert seen == [
        (1, False, False, False, False),
        (2, False, False, True, False),
        (3, False, True, True, False),
        (4, True, True, True, False),
        (5, True, True, True, True),
    ]


@pytest.mark.parametrize("answer", [0, "yes", split_stream])
async def test_a_checker_that_returns_anything_else_is_a_clear_error(io, answer):
    """Also a coroutine, of an async function: it would be true."""
    source = Source([say("a")])
    with pytest.raises(StreamError, match=r"The checker .* Expected True, False or None\."):
        await io.split(source, checker=lambda _: answer)
    assert not source.open


# --- after the decision ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2, 3])
async def test_an_early_exit_closes_the_source(io, number):
    """Whether or not chunks were read or buffered: the stream closes, nothing follows."""
    source = Source([say("a"), START, REST, say(), LAST])
    _, chunks = await io.split(source)
    assert source.open
    await io.read_within(chunks, number)
    assert not source.open
    assert await io.all(chunks) == []


class Plain:
    """An iterator, sync and async, that cannot be closed."""

    def __init__(self, items: list[Any]) -> None:
        self.items = list(items)

    def __iter__(self) -> Plain:
        return self

    def __next__(self) -> Any:
        if not self.items:
            raise StopIteration
        return self.items.pop(0)

    def __aiter__(self) -> Plain:
        return self

    async def __anext__(self) -> Any:
        if not self.items:
            raise StopAsyncIteration
        return self.items.pop(0)


async def test_closing_twice_and_closing_what_cannot_be_closed_are_fine(io):
    """A source without `close` is no error."""
    _, chunks = await io.split(Plain([START, REST]))
    await io.close(chunks)
    await io.close(chunks)
    assert await io.all(chunks) == []
    token = AIMessage("whole", id="1"), {}
    assert same(await io.all(io.answers(Plain([token]))), [token])


@pytest.mark.parametrize("checker", [first_chunk_checker, full_stream_checker])
async def test_an_error_of_the_source_reaches_the_reader_in_its_place(io, checker):
    """Before or after the decision: first the chunks that came, then the error, then the end."""
    chunks, error = [say(), say("Good "), say("mor")], ConnectionError("gone")
    answer, replay = await io.split(Source(chunks, error), checker=checker)
    assert answer is False
    assert same([await io.next(replay) for _ in chunks], chunks)
    with pytest.raises(ConnectionError) as raised:
        await io.next(replay)
    assert raised.value is error
    assert await io.all(replay) == []


async def test_a_closed_stream_does_not_raise_the_error_any_more(io):
    """A client that has closed the stream gets nothing more."""
    _, replay = await io.split(Source([say("a")], ConnectionError("gone")))
    await io.close(replay)
    assert await io.all(replay) == []


async def test_what_the_checker_raises_reaches_the_caller_and_the_source_is_closed(io):
    """An error of the checker is raised at once, not at its place in the stream."""

    def faulty(turn: Turn) -> bool:
        raise LookupError(len(turn.chunks))

    source = Source([say("a"), say("b")])
    with pytest.raises(LookupError) as raised:  # which keeps the frames, so nothing else closes
        await io.split(source, checker=faulty)
    assert raised.value.args == (1,)
    assert not source.open


async def test_a_cancelled_decision_closes_the_source():
    """A client that goes away while the decision is pending leaves no stream open."""
    closed = asyncio.Event()

    class Hanging:
        def __aiter__(self) -> Hanging:
            return self

        async def __anext__(self) -> AIMessageChunk:
            await asyncio.sleep(60)
            return START

        async def aclose(self) -> None:
            closed.set()

    task = asyncio.create_task(asplit_stream(Hanging()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()


async def test_the_chunks_are_freed_once_they_are_decided(io):
    """A caller that keeps a turn keeps no chunk alive."""
    turns: list[Turn] = []

    def noting(turn: Turn) -> bool | None:
        turns.append(turn)
        return full_stream_checker(turn)

    chunks = [say("Good "), say("day."), LAST]
    _, replay = await io.split(Source(chunks), checker=noting)
    assert same(await io.all(replay), chunks)
    assert turns[-1].chunks == []


@pytest.mark.parametrize("wrong", ["text", b"text", {"a": 1}, AIMessage("x"), 3, None])
async def test_a_value_that_is_no_stream_is_a_clear_error(io, wrong):
    """The value is quoted, and what is expected is named."""
    with pytest.raises(StreamError, match="Expected the chunks of one turn, got") as raised:
        await io.split(wrong)
    assert repr(wrong)[:200] in str(raised.value)


async def test_the_error_for_the_other_kind_of_stream_names_the_function_for_it():
    """A sync stream, an async one, and a coroutine that was not awaited."""

    async def stream():
        yield START

    with pytest.raises(StreamError, match=r"async stream .* Use asplit_stream\."):
        split_stream(stream())
    with pytest.raises(StreamError, match=r"sync stream .* Use split_stream\."):
        await asplit_stream(iter([START]))
    with pytest.raises(StreamError, match="Await it first"):
        split_stream(asyncio.sleep(0))
    with pytest.raises(StreamError, match="Await it first"):
        await asplit_stream(asyncio.sleep(0))


# --- calls and text that LangChain does not list ----------------------------------------------

COMPUTER = {"type": "computer_call", "call_id": "c1", "action": {"type": "screenshot"}}
CALLS = {
    "function_call": say(additional_kwargs={"function_call": {"name": "t", "arguments": ""}}),
    "computer_call": say([COMPUTER]),
    "computer_call, v1": say([{"type": "non_standard", "value": COMPUTER}]),
    "computer_call, v0": say(additional_kwargs={"tool_outputs": [COMPUTER]}),
    "approval": say([{"type": "mcp_approval_request", "id": "a1"}]),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("checker", [first_chunk_checker, full_stream_checker, live])
def test_calls_outside_tool_calls_are_calls(name, checker):
    """Each checker decides True at them, unless it has decided at the text before."""
    assert split_stream([say(), CALLS[name], LAST], checker=checker)[0] is True
    answer, chunks = split_stream([say("Let me see."), CALLS[name], LAST], checker=checker)
    assert len(list(chunks)) == 3
    assert answer is (checker is full_stream_checker)


def test_calls_that_the_provider_runs_are_no_calls():
    """A web search by the provider, its output, and an empty `function_call`."""
    search = {"type": "web_search_call", "id": "w1", "status": "completed"}
    extra = {"function_call": None, "tool_outputs": [search, "?"]}
    assert split_stream([say([search], additional_kwargs=extra), LAST])[0] is False


def phase(name: str, text: str = "") -> AIMessageChunk:
    """The chunk with which OpenAI's Responses API begins a text."""
    return say([{"type": "text", "text": text, "phase": name, "index": 0}])


@pytest.mark.parametrize("checker", [first_chunk_checker, full_stream_checker])
def test_commentary_decides_nothing_and_a_final_answer_decides_at_once(checker):
    """Text before a call is no answer for any checker; a final answer is one from its start."""
    source = Source([phase("commentary"), say("I look."), START, REST, LAST])
    assert split_stream(source, checker=checker)[0] is True
    assert source.read == 3
    source = Source([phase("commentary"), say("Hm."), phase("final_answer"), say("Yes"), LAST])
    assert split_stream(source, checker=checker)[0] is False
    assert source.read == 4
    v1 = say([{"type": "text", "text": "Yes", "extras": {"phase": "final_answer"}}])
    source = Source([v1, LAST])
    assert split_stream(source, checker=checker)[0] is False
    assert source.read == 1


def test_a_checker_of_an_application_sees_reasoning_and_commentary():
    """Everything that can be shown; empty chunks and white space are not."""
    beside = say(additional_kwargs={"reasoning_content": "hm"})
    for first in (think("hm"), say("a"), phase("commentary", "I look."), beside):
        source = Source([say(), say("\n"), first, START, LAST])
        assert split_stream(source, checker=live)[0] is False
        assert source.read == 3
