"""`final_answers` over streams that are written by hand: which tokens, when, and retractions."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)

from langgraph_patch.errors import StreamError
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.streaming import (
    RETRACTED_KEY,
    AdaptiveChecker,
    ModelStats,
    afinal_answers,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    live_checker,
)
from support.answer_agents import left
from support.streams import LAST, MODEL, REST, START, Async, Source, Sync, same, say


@pytest.fixture(params=[Sync, Async])
def io(request: pytest.FixtureRequest) -> Sync | Async:
    """One set of tests for the sync and the async function."""
    return request.param()


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
    assert checker.stats() == {MODEL: ModelStats(2, 1, 1, 0, 2, 0, 1)}


async def test_an_id_may_be_used_again_when_its_message_has_ended(io):
    """The decision about one message is not kept for the next one."""
    chunks = [START, LAST, say("Sunny."), LAST]
    tokens = [at("agent", one("1", chunk)) for chunk in chunks]
    assert same(await io.all(io.answers(Source(tokens))), tokens[2:])


async def test_a_late_call_retracts_what_was_shown(io):
    """The retraction comes with the call, once; nothing more of the message passes."""
    chunks = [say("Let "), say("me"), START, say("Hm"), REST, LAST]
    tokens = [at("a", one("1", chunk)) for chunk in chunks]
    for checker in (first_chunk_checker, live_checker):
        source = Source(tokens)
        shown = io.answers(source, checker=checker)
        assert same([await io.next(shown), await io.next(shown)], tokens[:2])
        retraction, metadata = await io.next(shown)
        assert source.read == 3
        assert isinstance(retraction, RemoveMessage)
        assert retraction.id == "1"
        assert metadata == {**tokens[2][1], RETRACTED_KEY: "tool_call"}
        assert await io.all(shown) == []


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
    )  # a reference, so that it is not garbage collected
    shown = io.answers(stream)
    await io.next(shown)
    await io.close(shown)
    assert not source.open
    assert await io.all(stream) == []
    with pytest.raises(ConnectionError, match="gone"):
        await io.all(io.answers(Source(INTERLEAVED, ConnectionError("gone"))))


@pytest.mark.parametrize(
    "item",
    [
        {"agent": {}},
        say("a"),
        (("ns",), {"agent": {}}),
        ("agents", {}),
        ("messages", {"type": "ai"}),
        ({"type": "ai", "content": 3}, {}),
        3,
    ],
)
async def test_another_stream_mode_is_a_clear_error(io, item):
    """The value is quoted, and the mode that is expected is named."""
    with pytest.raises(StreamError, match=r"stream_mode='messages'|is no message") as raised:
        await io.all(io.answers(Source([item])))
    assert repr(item).lstrip("(")[:9] in str(raised.value)


# --- failed attempts --------------------------------------------------------------------------


def within(task: str, message: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    """A pair with the metadata of a task."""
    node = task.partition(":")[0].rpartition("|")[2]
    return message, {"langgraph_node": node, "langgraph_checkpoint_ns": task, **more}


CHECKERS = [first_chunk_checker, full_stream_checker, live_checker]


@pytest.mark.parametrize("checker", CHECKERS)
async def test_models_side_by_side_in_one_task_are_no_failed_attempts(io, checker):
    """However their chunks are mixed, every client has both answers in the end."""
    one_by_one = [("1", say("a")), ("2", say("x")), ("2", say("y")), ("1", say("b"))]
    tokens = [within("n:t", one(i, c)) for i, c in [*one_by_one, ("2", LAST), ("1", LAST)]]
    shown = await io.all(io.answers(Source(tokens), checker=checker))
    assert sorted(left(shown)) == ["ab", "xy"]


@pytest.mark.parametrize("checker", CHECKERS)
async def test_an_attempt_that_broke_off_is_no_answer(io, checker):
    """Two failed attempts, then the answer; the same text without a task stays."""
    chunks = [("1", say("So")), ("2", say("Sun")), ("3", say("Sunny")), ("3", LAST)]
    tokens = [within("n:t", one(i, c)) for i, c in chunks]
    assert left(await io.all(io.answers(Source(tokens), checker=checker))) == ["Sunny"]
    apart = [within(f"n:{i}", one(i, c)) for i, c in chunks]
    expected = {"So", "Sun", "Sunny"}
    assert set(left(await io.all(io.answers(Source(apart), checker=checker)))) == expected


async def test_held_text_is_delivered_before_the_error(io):
    """What the model had written, but not its failed attempts, and no text before a call."""
    error = ConnectionError("gone")
    chunks = [("0", say("Let me")), ("0", START), ("1", say("So")), ("2", say("Sun"))]
    tokens = [within("n:t", one(i, c)) for i, c in chunks]
    shown = io.answers(Source(tokens, error), checker=full_stream_checker)
    assert await io.next(shown) is tokens[-1]
    with pytest.raises(ConnectionError) as raised:
        await io.next(shown)
    assert raised.value is error


# --- tools and middleware ---------------------------------------------------------------------


def result(call_id: str, **more: Any) -> ToolMessage:
    """A result."""
    return ToolMessage("sunny", tool_call_id=call_id, id=f"r-{call_id}", **more)


def inside(node: str) -> list[Any]:
    """A run in which a tool asks a model; the tool node has that name."""
    return [
        within("agent:1", one("1", START)),
        within("agent:1", one("1", LAST)),
        within(f"{node}:2", one("2", say("inner"))),
        within(f"{node}:2", one("2", LAST)),
        within(f"{node}:2|agent:3", one("3", say("deeper"))),
        within(f"{node}:2|agent:3", one("3", LAST)),
        within(f"{node}:2", result("c1")),
        within("agent:4", one("4", say("Yes."))),
        within("agent:4", one("4", LAST)),
    ]


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("node", ["tools", "my_tools"])
async def test_what_models_write_inside_tools_is_no_answer(io, checker, node):
    """The node `tools` is known at once, another one when it answers the call: on request it is."""
    tokens = inside(node)
    shown = await io.all(io.answers(Source(tokens), checker=checker))
    expected = ["Yes."] if node == "tools" else ["deeper", "Yes."]
    assert left(shown) == expected
    every = await io.all(io.answers(Source(tokens), checker=checker, internal=True))
    assert left(every) == ["inner", "deeper", "Yes."]


@pytest.mark.parametrize("checker", CHECKERS)
async def test_what_models_write_for_middleware_is_no_answer(io, checker):
    """LangChain marks it with `lc_source`; on request it is shown."""
    source = {"lc_source": "summarization"}
    tokens = [
        within("SummarizationMiddleware.before_model:1", one("1", say("sum")), **source),
        within("SummarizationMiddleware.before_model:1", one("1", LAST), **source),
        within("model:2", one("2", say("Yes."))),
        within("model:2", one("2", LAST)),
    ]
    assert left(await io.all(io.answers(Source(tokens), checker=checker))) == ["Yes."]
    every = await io.all(io.answers(Source(tokens), checker=checker, internal=True))
    assert left(every) == ["sum", "Yes."]


TURN = [within("agent:1", one("1", START)), within("agent:1", one("1", LAST))]
SECOND = AIMessageChunk(
    "", tool_call_chunks=[{**START.tool_call_chunks[0], "id": "c2", "index": 1}]
)
PLACEHOLDER = {PLACEHOLDER_KEY: {"cause": "unknown"}}
ENDS = {
    "a tool": (
        [*TURN, within("tools:2", result("c1"))],
        ["sunny"],
    ),
    "a tool that was called before this run": (
        [within("tools:2", result("c1"))],
        ["sunny"],
    ),
    "one of two tools": (
        [TURN[0], within("agent:1", one("1", SECOND)), TURN[1], within("tools:2", result("c1"))],
        [],
    ),
    "two tools": (
        [
            TURN[0],
            within("agent:1", one("1", SECOND)),
            TURN[1],
            within("tools:2", result("c1")),
            within("tools:3", result("c2")),
        ],
        ["sunny", "sunny"],
    ),
    "a model after the tool": (
        [*TURN, within("tools:2", result("c1")), within("agent:3", AIMessage("Yes.", id="3"))],
        ["Yes."],
    ),
    "an agent inside the tool": (
        [*TURN, within("tools:2|tools:3", result("x")), within("tools:2", result("c1"))],
        ["sunny"],
    ),
    "a placeholder": (
        [*TURN, within("agent:1", result("c1", additional_kwargs=PLACEHOLDER))],
        [],
    ),
    "a model that answers older calls itself": (
        [
            within("agent:1", one("1", START)),
            within("agent:1", one("1", LAST)),
            within("agent:2", AIMessage("Yes.", id="2")),
            within("agent:2", result("c1")),
        ],
        ["Yes.", "sunny"],
    ),
}


@pytest.mark.parametrize("name", ENDS)
async def test_tool_messages_are_the_answer_of_a_run_that_ends_with_them(io, name):
    """If no model follows, and all calls beside them have results."""
    tokens, expected = ENDS[name]
    assert [t.text for t, _ in await io.all(io.answers(Source(tokens)))] == expected


async def test_a_paused_or_failed_run_has_no_tool_message_as_answer(io):
    """The pause is seen in the other modes, if there are any."""
    tokens, _ = ENDS["a tool"]
    pauses = [
        ("updates", {"__interrupt__": ()}),
        ("updates", {"__interrupt__": ("approve?",)}),
        {"type": "values", "ns": (), "data": {}, "interrupts": ("approve?",)},
        ("values", {"__interrupt__": ["approve?"]}),
    ]
    for pause, number in zip(pauses, (1, 0, 0, 0), strict=True):
        stream = Source([*[("messages", token) for token in tokens], pause])
        assert len(await io.all(io.answers(stream))) == number
    shown = io.answers(Source(tokens, ConnectionError("gone")))
    with pytest.raises(ConnectionError):
        await io.next(shown)


# --- arguments --------------------------------------------------------------------------------


async def test_the_error_for_the_other_kind_of_stream_names_the_function_for_it():
    """A sync stream, an async one, an event stream that was not awaited, and no stream."""

    async def stream():
        yield at("a", say("x"))

    with pytest.raises(StreamError, match=r"async stream .* Use afinal_answers\."):
        final_answers(stream())
    with pytest.raises(StreamError, match=r"sync stream .* Use final_answers\."):
        afinal_answers(iter([at("a", say("x"))]))
    with pytest.raises(StreamError, match="Await it first"):
        afinal_answers(stream().__anext__())
    for wrong in ("text", {"messages": []}, AIMessage("x"), None):
        for function in (final_answers, afinal_answers):
            with pytest.raises(StreamError, match="Expected the stream of a graph, got"):
                function(wrong)


class Part(tuple):
    """An item of the SDK's stream."""

    __slots__ = ()
    event = property(lambda self: self[0])
    data = property(lambda self: self[1])


async def test_the_report_of_a_server_that_the_run_failed(io):
    """It is an error, after the held text; or an item of the stream, if other modes are."""
    token = at("a", one("1", say("So")))
    report = Part(("error", {"error": "ValueError", "message": "no"}))
    items = [Part(("metadata", {"run_id": "r"})), Part(("messages", list(token))), report]
    shown = io.answers(Source(items))
    assert (await io.next(shown))[0] is token[0]
    with pytest.raises(StreamError, match=r"run failed: .*ValueError"):
        await io.next(shown)
    every = await io.all(io.answers(Source(items), other_modes=True))
    assert every == [items[0], token, report]


async def test_in_the_events_of_a_server_only_messages_are_messages(io):
    """A value of the application may look like one, and the mode `messages` repeats each."""
    message = {"type": "ai", "content": "Yes.", "id": "1"}
    metadata = {"langgraph_node": "agent"}
    output = {"messages": [message], "note": {"type": "tool", "content": {}, "id": 7}}
    end = {"event": "on_chain_end", "name": "agent", "run_id": "r", "metadata": metadata}
    items = [
        Part(("events", {**end, "event": "on_chain_start", "data": {"input": output}})),
        Part(("events", {**end, "data": {"input": None, "output": output}})),
        Part(("messages", [message, metadata])),
    ]
    assert await io.all(io.answers(Source(items))) == [(AIMessage("Yes.", id="1"), metadata)]
    shown = await io.all(io.answers(Source(items), other_modes=True))
    assert [item for item in shown if isinstance(item, Part)] == [items[0], items[2]]


async def test_the_mode_of_a_server_that_repeats_the_text_is_a_clear_error(io):
    """The error names the mode to ask for."""
    item = ("messages/partial", [{"type": "ai", "content": "So"}])
    with pytest.raises(StreamError, match="messages-tuple"):
        await io.all(io.answers(Source([item])))


# --- content block events ---------------------------------------------------------------------


def block_event(event: str, **fields: Any) -> dict[str, Any]:
    """An item of a v3 stream."""
    metadata = {"langgraph_node": "agent", "langgraph_checkpoint_ns": "agent:1", "run_id": "r"}
    data = ({"event": event, **fields}, metadata)
    return {"type": "event", "method": "messages", "params": {"namespace": [], "data": data}}


def start(index: int, **block: Any) -> dict[str, Any]:
    """The begin of a content block."""
    return block_event("content-block-start", index=index, content=block)


def delta(index: int, **change: Any) -> dict[str, Any]:
    """A piece of a content block."""
    return block_event("content-block-delta", index=index, delta=change)


def done(index: int, **block: Any) -> dict[str, Any]:
    """The end of a content block."""
    return block_event("content-block-finish", index=index, content=block)


BEGIN = block_event("message-start", role="ai", id="m1")
FINISH = block_event(
    "message-finish", usage={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
)
ANSWER = [
    start(0, type="text", text="", phase="final_answer"),
    delta(0, type="text-delta", text="A"),
]
BLOCKS = {
    "a final answer": ([BEGIN, *ANSWER, FINISH], ["A"], 3),
    "text": ([BEGIN, delta(0, type="text-delta", text="A"), FINISH], ["A"], 3),
    "a call": (
        [
            BEGIN,
            delta(0, type="text-delta", text="A"),
            start(1, type="tool_call_chunk", id="c1", name="t", args=""),
            delta(1, type="tool-call-delta", args="{}"),
            done(1, type="tool_call", id="c1", name="t", args={}),
            FINISH,
        ],
        [],
        None,
    ),
    "an unreadable call": (
        [BEGIN, done(0, type="invalid_tool_call", id="c1", name="t", args="{"), FINISH],
        [],
        None,
    ),
    "a message that is no model's": (
        [block_event("message-start", role="tool", id="t1"), delta(0, type="text-delta", text="A")],
        [],
        None,
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
async def test_content_block_events_are_read_as_chunks(io, name):
    """The tokens of the answer have the id of the message; a marked answer comes at once."""
    items, expected, read = BLOCKS[name]
    source = Source(items)
    answers = io.answers(source, checker=full_stream_checker)
    if read is not None:
        first, _ = await io.next(answers)
        assert source.read == read
        assert first.id == "m1"
        shown = [(first, {}), *await io.all(answers)]
        assert shown[-1][0].usage_metadata["total_tokens"] == 2
    else:
        shown = await io.all(answers)
    assert left(shown) == expected
