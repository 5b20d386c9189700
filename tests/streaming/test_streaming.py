"""Checkers, split streams, final answers and the merging of chunks, each on its own."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage

from langgraph_patch import streaming
from langgraph_patch.errors import StreamError
from langgraph_patch.streaming import (
    UNFINISHED_KEY,
    AdaptiveChecker,
    AsyncChunks,
    Chunks,
    ModelStats,
    Turn,
    afinal_answers,
    asplit_stream,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    merge_tool_call_chunks,
    message_from_stream,
    split_stream,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MODEL = "openai:gpt-5"


# --- streams ----------------------------------------------------------------------------------


def say(content: Any = "", **more: Any) -> AIMessageChunk:
    """A chunk with text, blocks or nothing."""
    return AIMessageChunk(content=content, **more)


def call(args: str | None = None, *, index: int | None = 0, **start: str) -> AIMessageChunk:
    """A chunk with a piece of a call; `id` and `name` make it the first piece."""
    piece = {"name": start.get("name"), "args": args, "id": start.get("id"), "index": index}
    return AIMessageChunk(content="", tool_call_chunks=[piece])


def think(text: str) -> AIMessageChunk:
    """A chunk with reasoning."""
    return AIMessageChunk([{"type": "thinking", "thinking": text, "index": 0}])


LAST = say(chunk_position="last")
START = call("", id="c1", name="weather")
REST = call('{"city": "Rome"}')

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
    "parallel calls": (
        [START, REST, call("{}", index=1, id="c2", name="now"), LAST],
        (True, 1),
        (True, 1),
    ),
    "interleaved calls": (
        [START, call("", index=1, id="c2", name="now"), REST, call("{}", index=1), LAST],
        (True, 1),
        (True, 1),
    ),
    "sparse indexes": (
        [say(), call("{}", index=7, id="c2", name="now"), call("{}", index=2, id="c1", name="now")],
        (True, 2),
        (True, 2),
    ),
    "missing indexes": ([call("{}", index=None, id="c1", name="now"), LAST], (True, 1), (True, 1)),
    "only an unreadable call": ([say(), call("[1]"), LAST], (True, 2), (True, 2)),
    "empty chunks only": ([say(), say(), LAST], (False, 3), (False, 3)),
    "nothing": ([], (False, 0), (False, 0)),
}


class Source:
    """A model's stream, sync and async, that knows how far it was read and whether it is open."""

    def __init__(self, chunks: list[Any], error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error
        self.read = 0
        self.open = True

    def __iter__(self) -> Iterator[Any]:
        try:
            for chunk in self.chunks:
                self.read += 1
                yield chunk
            if self.error:
                raise self.error
        finally:
            self.open = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            for chunk in self.chunks:
                await asyncio.sleep(0)
                self.read += 1
                yield chunk
            if self.error:
                raise self.error
        finally:
            self.open = False


class Sync:
    """The sync functions, awaitable like the async ones."""

    async def split(self, source: Source, **options: Any) -> tuple[bool, Chunks]:
        """Split."""
        return split_stream(source, **options)

    async def next(self, chunks: Iterator[Any]) -> Any:
        """The next item."""
        return next(chunks)

    async def all(self, chunks: Iterator[Any]) -> list[Any]:
        """Every item that is left."""
        return list(chunks)

    async def close(self, chunks: Any) -> None:
        """Stop reading."""
        chunks.close()

    async def read_within(self, chunks: Chunks, number: int) -> None:
        """Read some chunks in a block that closes."""
        with chunks:
            for _ in range(number):
                next(chunks)

    def answers(self, source: Source, **options: Any) -> Iterator[Any]:
        """The final answers."""
        return final_answers(source, **options)


class Async:
    """The async functions."""

    async def split(self, source: Source, **options: Any) -> tuple[bool, AsyncChunks]:
        """Split."""
        return await asplit_stream(source, **options)

    async def next(self, chunks: AsyncIterator[Any]) -> Any:
        """The next item."""
        return await anext(chunks)

    async def all(self, chunks: AsyncIterator[Any]) -> list[Any]:
        """Every item that is left."""
        return [chunk async for chunk in chunks]

    async def close(self, chunks: Any) -> None:
        """Stop reading."""
        await chunks.aclose()

    async def read_within(self, chunks: AsyncChunks, number: int) -> None:
        """Read some chunks in a block that closes."""
        async with chunks:
            for _ in range(number):
                await anext(chunks)

    def answers(self, source: Source, **options: Any) -> AsyncIterator[Any]:
        """The final answers."""
        return afinal_answers(source, **options)


@pytest.fixture(params=[Sync, Async])
def io(request: pytest.FixtureRequest) -> Sync | Async:
    """One set of tests for the sync and the async function."""
    return request.param()


def same(left: list[Any], right: list[Any]) -> bool:
    """Whether two lists hold the same objects."""
    return [id(item) for item in left] == [id(item) for item in right]


def trusting() -> AdaptiveChecker:
    """An adaptive checker that has seen the model call twenty times."""
    checker = AdaptiveChecker()
    for _ in range(20):
        split_stream([START, REST, LAST], checker=checker, model=MODEL)
    return checker


# --- the decision -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("checker", ["first", "full", "adaptive, fresh", "adaptive, trusting"])
async def test_each_checker_answers_and_reads_as_the_table_says(io, checker, name):
    """Answer and number of chunks read; then the same chunk objects, once each, to the end."""
    chunks, first, full = STREAMS[name]
    asked, expected = {
        "first": (first_chunk_checker, first),
        "full": (full_stream_checker, full),
        "adaptive, fresh": (AdaptiveChecker(), full),
        "adaptive, trusting": (trusting(), first),
    }[checker]
    source = Source(chunks)
    answer, replay = await io.split(source, checker=asked, model=MODEL)
    assert (answer, source.read) == expected
    assert same(await io.all(replay), chunks)
    assert replay.late_call is (not answer and any(chunk.tool_calls for chunk in chunks))


async def test_any_callable_is_a_checker_and_no_answer_at_the_end_is_a_no(io):
    """A function of the turn decides as it likes; one that never answers answers no."""

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


def test_a_turn_says_what_was_read():
    """The facts that a checker sees after each chunk."""
    seen = []

    def note(turn: Turn) -> None:
        seen.append((len(turn.chunks), turn.called, turn.spoke, turn.ended, turn.model))

    named = {"model_provider": "anthropic", "model_name": "claude-x"}
    chunks = [say([], response_metadata=named), think("hm"), say(" a"), START, LAST]
    assert split_stream(chunks, checker=note)[0] is False
    model = "anthropic:claude-x"
    assert seen == [
        (1, False, False, False, model),
        (2, False, False, False, model),
        (3, False, True, False, model),
        (4, True, True, False, model),
        (5, False, True, True, model),
    ]


# --- after the decision -----------------------------------------------------------------------


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
    """There is not always something to close."""
    _, chunks = await io.split(Plain([START, REST]))
    await io.close(chunks)
    await io.close(chunks)
    assert await io.all(chunks) == []
    token = at("plain", AIMessage("whole", id="1"))
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
    """Who has gone away wants to hear of nothing."""
    _, replay = await io.split(Source([say("a")], ConnectionError("gone")))
    await io.close(replay)
    assert await io.all(replay) == []


async def test_what_the_checker_raises_reaches_the_caller_and_the_source_is_closed(io):
    """A fault of the checker is not one of the stream."""

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


async def test_a_call_after_an_early_no_is_flagged_when_it_comes(io):
    """`late_call` turns true with the call's chunk; the chunks come all the same."""
    chunks = [say("Let me see."), say(" Hm."), START, REST, LAST]
    answer, replay = await io.split(Source(chunks), checker=first_chunk_checker)
    flags = [((await io.next(replay)) is chunk, replay.late_call) for chunk in chunks]
    assert answer is False
    assert flags == [(True, False), (True, False), (True, True), (True, True), (True, True)]


# --- learning ---------------------------------------------------------------------------------

TEXT = [say("Good "), say("morning."), LAST]
CALL = [say(), START, REST, LAST]
TEXT_FIRST = [say("Let me see."), START, REST, LAST]


def answer_of(checker: AdaptiveChecker, chunks: list[AIMessageChunk], model=MODEL) -> bool:
    """Split and read to the end."""
    answer, replay = split_stream(chunks, checker=checker, model=model)
    assert same(list(replay), chunks)
    return answer


def test_a_no_is_early_only_after_twenty_turns_with_calls():
    """Nineteen teach nothing yet, text-only turns do not count, the twentieth does."""
    checker = AdaptiveChecker()
    for _ in range(19):
        assert answer_of(checker, CALL)
        assert not answer_of(checker, TEXT)
    assert checker.stats() == {MODEL: ModelStats(38, 19, 0, 0, 19 * 2 + 19 * 3)}
    assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT)
    assert checker.stats() == {MODEL: ModelStats(40, 20, 1, 0, 20 * 2 + 19 * 3 + 1)}


def test_a_turn_with_text_first_keeps_a_model_from_ever_being_trusted():
    """It was read in full, so nothing went wrong; but this model writes text first."""
    checker = AdaptiveChecker(min_calls=1)
    assert answer_of(checker, TEXT_FIRST)
    for _ in range(5):
        assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT)
    assert checker.stats() == {MODEL: ModelStats(7, 6, 0, 0, 2 + 5 * 2 + 3, text_first=True)}


def test_text_in_the_chunk_of_a_call_is_not_text_first():
    """Whoever read that chunk knew of the call."""
    checker = AdaptiveChecker(min_calls=1)
    both = AIMessageChunk("See:", tool_call_chunks=START.tool_call_chunks)
    assert answer_of(checker, [both, REST, LAST])
    assert checker.stats() == {MODEL: ModelStats(1, 1, 0, 0, 1, text_first=False)}


def test_a_whole_message_with_text_and_a_call_teaches_nothing():
    """It does not show which came first; one without text does, as there was none."""
    checker = AdaptiveChecker(min_calls=1)
    listed_call = {"name": "t", "args": {}, "id": "c1"}
    for text, calls in (("Let me see.", 0), ("", 1)):
        turn = Turn(checker, "openai:gpt-5")
        turn.take(AIMessage(text, tool_calls=[listed_call]))
        assert turn.answer is True
        assert checker.stats().get("openai:gpt-5", ModelStats()).calls == calls


def test_one_wrong_no_demotes_a_model_for_good():
    """The call comes late once; afterwards every turn is read in full again."""
    checker = AdaptiveChecker(min_calls=1)
    assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT_FIRST)
    for _ in range(30):
        assert answer_of(checker, CALL)
    assert answer_of(checker, TEXT_FIRST)
    stats = ModelStats(33, 33, 1, 1, 2 + 1 + 30 * 2 + 2, text_first=True)
    assert checker.stats() == {MODEL: stats}


def test_models_are_learned_apart_and_an_unknown_one_never():
    """What one model does says nothing about another one."""
    checker = AdaptiveChecker(min_calls=1)
    assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT, model="anthropic:claude-x")
    assert not answer_of(checker, TEXT, model=None)
    assert checker.stats() == {
        MODEL: ModelStats(1, 1, 0, 0, 2),
        "anthropic:claude-x": ModelStats(1, 0, 0, 0, 3),
    }


def test_a_model_is_known_by_what_its_chunks_say():
    """Claude's first chunk names it, so that even a text-first turn can be predicted."""
    named = {"model_provider": "anthropic", "model_name": "claude-x"}
    checker = AdaptiveChecker(min_calls=1)
    assert answer_of(checker, [say([], response_metadata=named), START, LAST], model=None)
    text = [say([], response_metadata=named), say("Good "), say("day."), LAST]
    assert not answer_of(checker, text, model=None)
    assert checker.stats() == {"anthropic:claude-x": ModelStats(2, 1, 1, 0, 4)}


def test_the_models_are_bounded_and_a_further_one_is_read_in_full():
    """No entry is dropped to limit the size, since that might be a demotion."""
    checker = AdaptiveChecker(min_calls=1, max_models=1)
    assert answer_of(checker, CALL)
    for _ in range(3):
        assert answer_of(checker, CALL, model="x:y")
        assert not answer_of(checker, TEXT, model="x:y")
    assert checker.stats() == {MODEL: ModelStats(1, 1, 0, 0, 2)}


def test_reset_forgets_and_stats_is_a_copy():
    """The caller's view is not the checker's memory."""
    checker = trusting()
    checker.stats().clear()
    assert checker.stats() == {MODEL: ModelStats(20, 20, 0, 0, 20)}
    checker.reset()
    assert checker.stats() == {}


def test_a_stream_that_broke_off_teaches_nothing():
    """An error is not the end of a turn."""
    checker = AdaptiveChecker(min_calls=1)
    split_stream(Source([say("a")], ConnectionError()), checker=checker, model=MODEL)
    assert checker.stats() == {}


def test_threads_lose_no_turn():
    """Eight threads, 4,000 turns: every one is counted."""
    checker = AdaptiveChecker()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: split_stream([START], checker=checker, model=MODEL), range(4000)))
    assert checker.stats() == {MODEL: ModelStats(4000, 4000, 0, 0, 4000)}


# --- final answers ----------------------------------------------------------------------------


def at(node: str, message: Any) -> tuple[Any, dict[str, Any]]:
    """A pair as `stream_mode="messages"` gives it."""
    return message, {"langgraph_node": node, "ls_provider": "openai", "ls_model_name": "gpt-5"}


def one(id_: str, chunk: AIMessageChunk) -> AIMessageChunk:
    """The chunk as one of the message with that id."""
    return chunk.model_copy(update={"id": id_})


INTERLEAVED = [
    at("agent", one("1", say())),
    at("critic", one("2", say("Fine"))),
    at("agent", one("1", START)),
    at("tools", ToolMessage("sunny", tool_call_id="c1", id="t")),
    at("critic", one("2", say("."))),
    at("agent", one("1", REST)),
    at("agent", one("1", LAST)),
    at("human", HumanMessage("hi", id="h")),
    at("critic", one("2", LAST)),
    at("plain", AIMessage("whole", id="3")),
    at("plain", AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "c2"}], id="4")),
    at("agent", one("5", say("Let me"))),
    at("agent", one("5", START)),
    at("agent", one("5", LAST)),
]


@pytest.mark.parametrize("checker", [full_stream_checker, AdaptiveChecker()])
async def test_only_final_answers_pass_and_messages_are_distinguished_by_id(io, checker):
    """Two nodes at once, whole messages, tool and human messages: the same pairs, in order."""
    shown = await io.all(io.answers(Source(INTERLEAVED), checker=checker))
    assert same(shown, [INTERLEAVED[place] for place in (1, 4, 8, 9)])


@pytest.mark.parametrize(
    ("checker", "stored"), [(first_chunk_checker, 2), (full_stream_checker, 4)]
)
async def test_an_answer_is_shown_as_soon_as_its_checker_says_so(io, checker, stored):
    """The first token is shown after two chunks, or when the message has ended."""
    tokens = [at("agent", one("1", chunk)) for chunk in [say(), say("Good "), say("day."), LAST]]
    source = Source(tokens)
    shown = io.answers(source, checker=checker)
    assert await io.next(shown) is tokens[0]
    assert source.read == stored
    assert same(await io.all(shown), tokens[1:])


async def test_the_adaptive_checker_learns_from_the_metadata_of_the_graph(io):
    """The model's name is in the metadata of each chunk."""
    checker = AdaptiveChecker(min_calls=1)
    turns = [[START, LAST], [say("Good "), LAST]]
    tokens = [at("a", one(str(n), chunk)) for n, turn in enumerate(turns) for chunk in turn]
    await io.all(io.answers(Source(tokens), checker=checker))
    assert checker.stats() == {MODEL: ModelStats(2, 1, 1, 0, 2)}


async def test_an_id_may_be_used_again_when_its_message_has_ended(io):
    """What was decided of one message says nothing about the next one, and is not kept."""
    chunks = [START, LAST, say("Sunny."), LAST]
    tokens = [at("agent", one("1", chunk)) for chunk in chunks]
    assert same(await io.all(io.answers(Source(tokens))), tokens[2:])


async def test_nothing_more_of_a_message_passes_after_a_late_call(io):
    """What was shown cannot be taken back; what follows is buffered."""
    tokens = [at("a", one("1", chunk)) for chunk in [say("Let me"), START, say("Hm"), LAST]]
    shown = await io.all(io.answers(Source(tokens), checker=first_chunk_checker))
    assert same(shown, tokens[:1])


async def test_an_answer_without_a_last_chunk_passes_at_the_end_of_the_stream(io):
    """And a message of which only empty chunks came is no answer."""
    tokens = [at("a", one("resp_1", say([]))), at("a", one("1", say("Good ")))]
    assert same(await io.all(io.answers(Source(tokens))), tokens[1:])
    late_yes = await io.all(io.answers(Source(tokens), checker=lambda turn: turn.ended or None))
    assert late_yes == []


async def test_the_stream_of_the_graph_is_closed_and_its_error_passed_on(io):
    """On an early exit, and when the graph raises."""
    source = Source(INTERLEAVED)
    stream = (
        aiter(source) if isinstance(io, Async) else iter(source)
    )  # a reference, so that it is not collected
    shown = io.answers(stream)
    await io.next(shown)
    await io.close(shown)
    assert not source.open
    assert await io.all(stream) == []
    with pytest.raises(ConnectionError, match="gone"):
        await io.all(io.answers(Source(INTERLEAVED, ConnectionError("gone"))))


@pytest.mark.parametrize(
    "item", [(("ns",), (say("a"), {})), ("messages", (say("a"), {})), {"agent": {}}, say("a")]
)
async def test_another_stream_mode_is_a_clear_error(io, item):
    """The value is quoted, and the mode that is expected is named."""
    with pytest.raises(StreamError, match="stream_mode='messages'") as raised:
        await io.all(io.answers(Source([item])))
    assert repr(item) in str(raised.value)


# --- merging ----------------------------------------------------------------------------------

pieces = st.lists(
    st.builds(
        lambda name, args, id_, index, more: {
            "name": name,
            "args": args,
            "id": id_,
            "index": index,
            **more,
        },
        st.sampled_from([None, None, "", "weather", "weather", "now"]),
        st.sampled_from([None, "", "{", '"a": 1', "}", "[", "ü"]),
        st.sampled_from([None, None, "", "c1", "c1", "c2"]),
        st.sampled_from([None, 0, 1, 2, 7]),
        st.sampled_from([{}, {"type": "a"}, {"type": "b"}, {"extras": 1}, {"extras": 2}]),
    ),
    max_size=6,
)


def assert_conflict(chunks: list[Any], values_by_key: dict[tuple[int, str], list[str]]) -> bool:
    """If two pieces of one index differ, the error names the first such place."""
    conflicts = [place for place, values in values_by_key.items() if len(set(values)) > 1]
    if not conflicts:
        return False
    with pytest.raises(StreamError) as raised:
        merge_tool_call_chunks(chunks)
    number, key = conflicts[0]
    first, other = list(dict.fromkeys(values_by_key[number, key]))[:2]
    assert f"index {number} have different {key}s: {first!r} and {other!r}" in str(raised.value)
    return True


@pytest.mark.slow
def test_the_merge_obeys_its_rules():
    """Each rule, checked on input and output: by index, atomic, joined, sorted, unmerged."""
    outcomes: Counter[bool] = Counter()

    @settings(max_examples=3000, deadline=None, derandomize=True)
    @given(pieces)
    def rules(chunks: list[Any]) -> None:
        before = copy.deepcopy(chunks)
        loose = [chunk for chunk in chunks if chunk["index"] is None]
        numbers = sorted({chunk["index"] for chunk in chunks} - {None})
        groups = {n: [chunk for chunk in chunks if chunk["index"] == n] for n in numbers}
        output = {
            (number, key): [chunk[key] for chunk in group if chunk.get(key)]
            for number, group in groups.items()
            for key in ("id", "type", "name")
        }
        conflict = assert_conflict(chunks, output)
        outcomes[conflict] += 1
        if not conflict:
            merged = merge_tool_call_chunks(chunks)
            assert merged[: len(loose)] == loose
            assert [whole["index"] for whole in merged[len(loose) :]] == numbers
            for whole in merged[len(loose) :]:
                group = groups[whole["index"]]
                assert whole["args"] == "".join(chunk["args"] or "" for chunk in group)
                assert whole.get("extras") == group[0].get("extras")
                for key in ("id", "type", "name"):
                    found = output[whole["index"], key]
                    assert whole.get(key) == (found[0] if found else group[0].get(key))
        assert chunks == before

    rules()
    assert outcomes[True] > 300
    assert outcomes[False] > 300


def test_one_id_under_two_indexes_stays_two_calls():
    """The index decides, not the id."""
    chunks = [*call("{}", index=1, id="c1", name="a").tool_call_chunks]
    chunks += call("{}", index=0, id="c1", name="b").tool_call_chunks
    assert merge_tool_call_chunks(chunks) == chunks[::-1]


def test_a_merged_call_is_a_copy():
    """Whoever changes one does not change the stream's chunk."""
    for index in (None, 0):
        (piece,) = call("{}", index=index, id="c1", name="a").tool_call_chunks
        (merged,) = merge_tool_call_chunks([piece])
        assert merged == piece
        assert merged is not piece


# --- a message out of a stream ----------------------------------------------------------------


def listed(message: AIMessage) -> tuple[list[Any], list[Any]]:
    """The calls of a message: (name, args) of the valid ones, (name, raw text) of the others."""
    return (
        [(c["name"], c["args"]) for c in message.tool_calls],
        [(c["name"], c["args"]) for c in message.invalid_tool_calls],
    )


@pytest.mark.parametrize(
    ("raw", "args"),
    [
        ('{"q": "weather"}', {"q": "weather"}),
        (' {"q": 1}\n', {"q": 1}),
        ("{}", {}),
        ('{"q": "wea', None),
        ('{"q": ["a", {"b', None),
        ("{", None),
        ('{"q": 1}}', None),
        ("[1]", None),
        ("null", None),
        ("  ", None),
        ("not json", None),
        ('{"q": "a\nb"}', {"q": "a\nb"}),  # a raw newline: LangChain's parser takes it too
        ('{"q": "a\nb', None),
        ('{"q": ' + "[" * 100_000, None),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_only_a_complete_json_object_makes_a_call(raw, args, ended):
    """LangChain completes cut-off arguments; here the raw text must be whole, ended or not."""
    message = message_from_stream([call(raw, id="c1", name="t")], ended=ended)
    expected = ([("t", args)], []) if args is not None else ([], [("t", raw)])
    assert listed(message) == expected


FINISH = {"model_provider": "openai", "finish_reason": "tool_calls"}
ENDS = [
    *[("finish_reason", reason) for reason in ("stop", "function_call", "STOP", "eos_token")],
    *[("finish_reason", reason) for reason in ("COMPLETE", "TOOL_CALL")],  # Cohere
    *[("stop_reason", reason) for reason in ("end_turn", "stop_sequence")],
]
"""Reasons for which a model ends by itself, as integrations store them."""

CUTS = [
    *[("stopReason", reason) for reason in ("guardrail_intervened", "content_filtered")],
    *[("stopReason", reason) for reason in ("malformed_tool_use", "malformed_model_output")],
    *[("stop_reason", reason) for reason in ("refusal", "model_context_window_exceeded")],
    *[("stop_reason", reason) for reason in ("pause_turn", "compaction")],
    *[("finish_reason", reason) for reason in ("model_length", "error", "content_filter")],
    *[("finish_reason", reason) for reason in ("SAFETY", "MALFORMED_FUNCTION_CALL", "OTHER")],
    *[("finish_reason", reason) for reason in ("insufficient_system_resource", "of_tomorrow")],
    *[("status", reason) for reason in ("failed", "cancelled", "in_progress", "queued")],
    ("done_reason", "load"),
]
"""Reasons that say, or may say, that it was stopped."""


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        ([], False),
        ([LAST], True),
        ([say(response_metadata=FINISH)], True),
        ([say(response_metadata={"stop_reason": "tool_use"})], True),
        ([say(response_metadata={"stopReason": "tool_use"})], True),
        ([say(response_metadata={"done_reason": "stop"})], True),
        ([say(response_metadata={"status": "completed"}, chunk_position="last")], True),
        ([say(response_metadata={"status": "incomplete"}, chunk_position="last")], False),
        ([say(response_metadata={"finish_reason": "length"}), LAST], False),
        ([say(response_metadata={"finish_reason": "MAX_TOKENS"}), LAST], False),
        ([say(response_metadata={"stop_reason": "max_tokens"}, chunk_position="last")], False),
        ([say(response_metadata={"model_provider": "openai"}), LAST], False),
        ([say(response_metadata={"finish_reason": None}), LAST], True),
        ([say(response_metadata=FINISH), say(response_metadata=FINISH)], True),
        ([say(response_metadata={"finish_reason": "stopstop"})], True),
        *[([say(response_metadata={key: reason})], True) for key, reason in ENDS],
        *[([say(response_metadata={key: reason}), LAST], False) for key, reason in CUTS],
    ],
)
def test_empty_arguments_are_those_of_a_call_only_if_the_model_had_finished(end, ended):
    """The provider's reason counts; `last` alone only where no reason is sent."""
    chunks = [START, call(None), *end]
    assert listed(message_from_stream(chunks)) == (
        ([("weather", {})], []) if ended else ([], [("weather", "")])
    )
    for output in (True, False):
        expected = ([("weather", {})], []) if output else ([], [("weather", "")])
        assert listed(message_from_stream(chunks, ended=output)) == expected


def test_a_pause_leaves_the_call_of_a_server_open():
    """Claude pauses to be called again with its own output; that finishes no other call."""
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    for reason, kept in (("pause_turn", True), ("refusal", False)):
        end = say([], response_metadata={"stop_reason": reason}, chunk_position="last")
        message = message_from_stream([say([search]), START, call(None), end])
        assert listed(message) == ([], [("weather", "")])
        assert message.content == ([search] if kept else "")


def test_everything_but_the_calls_is_merged_as_langchain_does_it():
    """Text, reasoning, id, usage, metadata and extra keys are those of the sum of the chunks."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    chunks = [
        AIMessageChunk([], id="lc_run--1", response_metadata={"model_provider": "anthropic"}),
        think("h"),
        think("m"),
        AIMessageChunk([{"type": "text", "text": "See", "index": 1}], id="msg_1"),
        AIMessageChunk([{"type": "text", "text": ":", "index": 1}], usage_metadata=usage),
        call('{"city": ', id="c1", name="weather"),
        call('"Rome"}'),
        say([], additional_kwargs={"refusal": None}, response_metadata={"stop_reason": "end"}),
    ]
    before = copy.deepcopy(chunks)
    merged = chunks[0] + chunks[1:]
    assert message_from_stream(iter(chunks)) == AIMessage(
        merged.content,
        id="msg_1",
        usage_metadata=usage,
        response_metadata=merged.response_metadata,
        additional_kwargs={"refusal": None},
        tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "c1"}],
    )
    assert chunks == before


def test_calls_come_in_the_order_of_their_indexes_whichever_arrived_first():
    """Interleaved, sparse and index-less pieces: LangChain's order would be that of arrival."""
    chunks = [
        call('{"n": ', index=7, id="c7", name="seven"),
        call('{"n": 2}', index=2, id="c2", name="two"),
        call("7}", index=7),
        call('{"n": 0}', index=None, id="c0", name="loose"),
        call('{"cut', index=3, id="c3", name="three"),
    ]
    assert listed(message_from_stream(chunks)) == (
        [("loose", {"n": 0}), ("two", {"n": 2}), ("seven", {"n": 7})],
        [("three", '{"cut')],
    )


def test_a_repeated_name_is_one_name():
    """LangChain would call it `weatherweather`."""
    chunks = [call("{", id="c1", name="weather"), call("}", id="c1", name="weather")]
    assert listed(message_from_stream(chunks)) == ([("weather", {})], [])


def test_pieces_without_an_index_are_no_calls_of_their_own_names():
    """They cannot be joined, and a piece without a name is nothing to run, whatever it says."""
    chunks = [call("", index=None, id="c1", name="t"), call("{}", index=None), call("", index=None)]
    assert listed(message_from_stream(chunks)) == ([], [("t", ""), (None, "{}")])


def test_nothing_makes_an_empty_message():
    """No chunk, or empty ones only: there is nothing to store."""
    assert message_from_stream([]) == AIMessage("")
    assert message_from_stream([say([], id="1"), say([])]) == AIMessage("", id="1")


@pytest.mark.parametrize("kind", ["tool_use", "function_call", "tool_call_chunk", "tool_call"])
def test_the_block_of_an_unfinished_call_keeps_its_place_with_empty_arguments(kind):
    """A block that repeats the cut text would be sent as it is, or refused."""
    started = {
        "tool_use": {"id": "c1", "name": "t", "input": {}, "partial_json": '{"a'},
        "function_call": {"call_id": "c1", "id": "fc_1", "name": "t", "arguments": '{"a'},
        "tool_call_chunk": {"id": "c1", "name": "t", "args": '{"a'},
        "tool_call": {"id": "c1", "name": "t", "args": {"a": None}},
    }[kind]
    settled = {
        "tool_use": {"type": "tool_use", "id": "c1", "name": "t", "input": {}},
        "function_call": {"type": kind, **started, "arguments": "{}"},
        "tool_call_chunk": {"type": "tool_call", "id": "c1", "name": "t", "args": {}},
        "tool_call": {"type": "tool_call", "id": "c1", "name": "t", "args": {}},
    }[kind]
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    piece = {"name": "t", "args": '{"a', "id": "c1", "index": 1}
    chunk = AIMessageChunk([thought, {"type": kind, **started}], tool_call_chunks=[piece])
    message = message_from_stream([chunk])
    assert message.content == [thought, settled]
    assert message.additional_kwargs == {}


def test_the_blocks_of_finished_calls_stay_as_langchain_leaves_them():
    """So do those of calls that stand in the content only."""
    block = {"type": "tool_use", "id": "c1", "name": "t", "input": {}, "partial_json": "{}"}
    piece = {"name": "t", "args": "{}", "id": "c1", "index": 0}
    chunk = AIMessageChunk([block], tool_call_chunks=[piece])
    assert message_from_stream([chunk]).content == [block]
    unlisted = {"type": "tool_use", "id": "c2", "name": "t", "input": {}}
    assert message_from_stream([AIMessageChunk([unlisted])]).content == [unlisted]


@pytest.mark.parametrize("version", [{"output_version": "v1"}, {}])
def test_a_block_that_only_streams_have_becomes_the_standard_one(version):
    """OpenAI and Anthropic refuse a `tool_call_chunk`; the chunk itself is not changed."""
    piece = {"name": "t", "args": '{"a": 1}', "id": "c1", "index": 0}
    block = {"type": "tool_call_chunk", **piece}
    chunk = AIMessageChunk([block], tool_call_chunks=[piece], response_metadata=version)
    (settled,) = message_from_stream([chunk]).content
    assert {key: value for key, value in settled.items() if key != "index"} == {
        "type": "tool_call",
        "id": "c1",
        "name": "t",
        "args": {"a": 1},
    }
    assert chunk.content == [{"type": "tool_call_chunk", **piece}]


def test_the_block_of_a_call_without_arguments_gets_them():
    """Bedrock's block of such a call has no `input`, and its own integration raises at it."""
    block = {"type": "tool_use", "id": "c1", "name": "t"}
    piece = {"name": "t", "args": None, "id": "c1", "index": 0}
    message = message_from_stream([AIMessageChunk([block], tool_call_chunks=[piece])], ended=True)
    assert message.content == [{**block, "input": {}}]


THOUGHT = {"type": "thinking", "thinking": "hm"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
WORDS = {"type": "text", "text": "See:"}
PIECE = {"type": "input_json_delta", "partial_json": "{", "index": 4}


@pytest.mark.parametrize(
    ("content", "kept", "unfinished"),
    [
        ([THOUGHT], "", [THOUGHT]),
        ([WORDS, THOUGHT], [WORDS], [THOUGHT]),
        ([THOUGHT, WORDS], [THOUGHT, WORDS], []),
        ([WORDS, SEARCH], [WORDS], [SEARCH]),
        ([THOUGHT, SEARCH], "", [THOUGHT, SEARCH]),
        ([SEARCH, FOUND], [SEARCH, FOUND], []),
        ([WORDS, PIECE], [WORDS], [PIECE]),
        ([WORDS, {"type": "tool_use", "input": "{", "id": None}], [WORDS], [...]),
        (["plain", THOUGHT], ["plain"], [THOUGHT]),
    ],
)
def test_what_a_cut_left_open_leaves_the_content_and_is_kept(content, kept, unfinished):
    """Reasoning that nothing follows, a search without its result, a piece without a start."""
    message = message_from_stream([AIMessageChunk(content)])
    unfinished = content[-1:] if unfinished == [...] else unfinished
    assert message.content == kept
    assert message.additional_kwargs == ({UNFINISHED_KEY: unfinished} if unfinished else {})


def test_reasoning_that_is_not_open_stays():
    """The stream had ended, or the calls that it was thought for stand outside the content."""
    assert message_from_stream([AIMessageChunk([THOUGHT])], ended=True).content == [THOUGHT]
    piece = {"name": "t", "args": "{}", "id": "c1", "index": 0}
    called = message_from_stream([AIMessageChunk([THOUGHT], tool_call_chunks=[piece])])
    assert called.content == [THOUGHT]


def test_the_raw_copy_of_an_unfinished_call_goes():
    """Mistral keeps one in `additional_kwargs`; that of finished calls stays."""
    for text, kept in (("{}", True), ('{"a', False)):
        function = {"name": "t", "arguments": text}
        raw = [{"id": "c1", "type": "function", "function": function, "index": 0}]
        piece = {"name": "t", "args": text, "id": "c1", "index": 0}
        chunk = AIMessageChunk(
            "", additional_kwargs={"tool_calls": raw, "x": 1}, tool_call_chunks=[piece]
        )
        extra = {"tool_calls": raw, "x": 1} if kept else {"x": 1}
        assert message_from_stream([chunk]).additional_kwargs == extra


def test_chunks_that_contradict_each_other_are_a_clear_error():
    """Two names for one index, or metadata that LangChain cannot merge."""
    with pytest.raises(StreamError, match="names: 'get_' and 'weather'"):
        message_from_stream([call("", id="c1", name="get_"), call("", name="weather")])
    odd = [say(id="1", response_metadata={"x": 1}), say(response_metadata={"x": "1"})]
    with pytest.raises(StreamError, match="cannot be merged") as raised:
        message_from_stream(odd)
    assert isinstance(raised.value.__cause__, TypeError)
    with pytest.raises(StreamError, match=r"got AIMessage\(content='whole'"):
        message_from_stream([say("a"), AIMessage("whole")])


texts = st.text(max_size=6)
chunk_lists = st.lists(
    st.one_of(
        texts.map(say),
        st.builds(
            call,
            st.sampled_from([None, "", "{", '{"a": 1}', "}", '"b"']),
            index=st.sampled_from([None, 0, 1]),
        ),
        st.builds(
            lambda index, args: call(args, index=index, id=f"c{index}", name=f"t{index}"),
            st.sampled_from([0, 1]),
            st.sampled_from(["", "{", "{}"]),
        ),
    ),
    max_size=8,
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(chunk_lists, st.booleans())
def test_a_call_is_listed_once_and_is_valid_only_if_its_text_is_an_object(chunks, ended):
    """Said of any stream: the raw text of every merged call decides, and no text is lost."""
    before = copy.deepcopy(chunks)
    message = message_from_stream(chunks, ended=ended)
    merged = merge_tool_call_chunks(p for chunk in chunks for p in chunk.tool_call_chunks)
    valid, invalid = [], []
    for piece in merged:
        text = piece["args"] or ("{}" if ended else "")
        try:
            valid_one = piece["name"] is not None and isinstance(json.loads(text), dict)
        except ValueError:
            valid_one = False
        if valid_one:
            valid.append((piece["id"], json.loads(text)))
        elif piece["id"] or piece["name"] or piece["args"]:
            invalid.append((piece["id"], piece["args"] or ""))
    assert [(c["id"], c["args"]) for c in message.tool_calls] == valid
    assert [(c["id"], c["args"]) for c in message.invalid_tool_calls] == invalid
    assert message.text == "".join(chunk.text for chunk in chunks)
    assert chunks == before


# --- the surface ------------------------------------------------------------------------------


def test_all_names_what_the_module_is_for():
    """`__all__` is sorted as ruff sorts it, and every name is there."""
    assert all(hasattr(streaming, name) for name in streaming.__all__)
    assert len(set(streaming.__all__)) == len(streaming.__all__)
