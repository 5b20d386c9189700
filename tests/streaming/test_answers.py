"""`final_answers`: which tokens, when, and retractions; over streams by hand and real graphs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from langgraph_patch import with_patching
from langgraph_patch.errors import StreamError
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.streaming import (
    RETRACTED_KEY,
    afinal_answers,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
)
from support.answer_agents import (
    INPUT,
    KINDS,
    OPTIONS,
    RETRIES,
    SUNNY,
    agent_model,
    astream,
    broken,
    by_hand,
    left,
    model_graph,
    stream,
    text,
    weather,
)
from support.chunk_model import ChunkModel
from support.streams import LAST, REST, START, Async, Source, Sync, live, same, say


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


async def test_only_final_answers_pass_and_messages_are_distinguished_by_id(io):
    """Two nodes at once, whole messages, tool and human messages: the same messages, in order."""
    shown = await io.all(io.answers(Source(INTERLEAVED)))
    assert same(shown, [INTERLEAVED[place] for place in (1, 4, 8, 9)])


@pytest.mark.parametrize(
    ("checker", "stored"), [(first_chunk_checker, 2), (full_stream_checker, 4)]
)
async def test_an_answer_is_shown_as_soon_as_its_checker_says_so(io, checker, stored):
    """The first token is shown after two chunks, or when the message has ended."""
    tokens = [at("agent", one("1", chunk)) for chunk in [say(), say("Good "), say("day."), LAST]]
    source = Source(tokens)
    shown = io.answers(source, checker=checker)
    assert same([await io.next(shown)], tokens[:1])
    assert source.read == stored
    assert same(await io.all(shown), tokens[1:])


async def test_an_id_may_be_used_again_when_its_message_has_ended(io):
    """The decision about one message is not kept for the next one."""
    chunks = [START, LAST, say("Sunny."), LAST]
    tokens = [at("agent", one("1", chunk)) for chunk in chunks]
    assert same(await io.all(io.answers(Source(tokens))), tokens[2:])


async def test_a_late_call_retracts_what_was_shown(io):
    """The retraction comes with the call, once; nothing more of the message passes."""
    chunks = [say("Let "), say("me"), START, say("Hm"), REST, LAST]
    tokens = [at("a", one("1", chunk)) for chunk in chunks]
    for checker in (first_chunk_checker, live):
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
        ("messages", {"type": "ai"}),
        ({"type": "ai", "content": 3}, {}),
        3,
    ],
)
async def test_another_stream_mode_is_a_clear_error(io, item):
    """The value is quoted, and the mode that is expected is named."""
    with pytest.raises(StreamError, match=r"stream_mode='messages'") as raised:
        await io.all(io.answers(Source([item])))
    assert repr(item).lstrip("(")[:9] in str(raised.value)


# --- failed attempts --------------------------------------------------------------------------


def within(task: str, message: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    """A pair with the metadata of a task."""
    node = task.partition(":")[0].rpartition("|")[2]
    return message, {"langgraph_node": node, "langgraph_checkpoint_ns": task, **more}


CHECKERS = [first_chunk_checker, full_stream_checker, live]


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
    assert same([await io.next(shown)], tokens[-1:])
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
        afinal_answers(asyncio.sleep(0))
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


async def test_the_mode_of_a_server_that_repeats_the_text_is_a_clear_error(io):
    """The error names the mode to ask for."""
    item = ("messages/partial", [{"type": "ai", "content": "So"}])
    with pytest.raises(StreamError, match="messages-tuple"):
        await io.all(io.answers(Source([item])))


async def test_a_message_of_a_server_is_a_dict(io):
    """As `messages-tuple` gives it; what is no message of LangChain's is a clear error."""
    fields = {"type": "AIMessageChunk", "content": "Yes.", "id": "1", "chunk_position": "last"}
    metadata = {"langgraph_node": "agent"}
    asked = {"type": "human", "content": "hi", "id": "0"}
    parts = [Part(("messages|agent:1", [each, metadata])) for each in (asked, fields)]
    ((shown, place),) = await io.all(io.answers(Source(parts)))
    assert (shown, place) == (AIMessageChunk("Yes.", id="1", chunk_position="last"), metadata)
    for wrong in ({"type": "tool", "content": "x"}, {"type": "of tomorrow", "content": "x"}):
        with pytest.raises(StreamError, match="stream_mode='messages'") as raised:
            await io.all(io.answers(Source([(wrong, metadata)])))
        assert raised.value.__cause__ is not None


# --- real graphs ------------------------------------------------------------------------------

SHAPES = [*OPTIONS]
RUNS = [
    (full_stream_checker, stream),
    (live, astream),
    (full_stream_checker, astream),
    (live, stream),
]
"""A checker, and how to run. Below, each kind meets two shapes and two of these, in turn."""


def in_turn(names: list[str], times: int) -> list[Any]:
    """Each name `times` times, with the next shape and the next way to run."""
    rows = [
        (names[n % len(names)], SHAPES[n % len(SHAPES)], *RUNS[n // len(SHAPES) % len(RUNS)])
        for n in range(times * len(names))
    ]
    return [
        pytest.param(*row, id=f"{row[0]}, {row[1]}, {row[2].__name__}, {row[3].__name__}")
        for row in rows
    ]


async def pairs_of(found: Any) -> list[Any]:
    """What was streamed, sync or async."""
    return [pair async for pair in found] if hasattr(found, "__aiter__") else list(found)


@pytest.mark.parametrize(("kind", "shape", "checker", "run"), in_turn([*KINDS], 2))
async def test_every_kind_of_agent_and_every_shape(kind, shape, checker, run):
    """A client has the answers in the end, each once, and nothing else."""
    make, expected = KINDS[kind]
    assert left(await pairs_of(run(make(), shape, checker))) == expected


@pytest.mark.parametrize(("name", "shape", "checker", "run"), in_turn([*RETRIES], 5))
async def test_a_failed_attempt_is_never_part_of_an_answer(name, shape, checker, run):
    """Five mechanisms that call a model again: the answer, once; early text is retracted."""
    pairs = await pairs_of(run(RETRIES[name](), shape, checker))
    assert left(pairs) == SUNNY
    reasons = [m[RETRACTED_KEY] for t, m in pairs if isinstance(t, RemoveMessage)]
    assert reasons == (["failed_attempt"] if checker is live else [])


@pytest.mark.parametrize("shape", OPTIONS)
async def test_what_a_failed_run_had_written_comes_before_its_error(shape):
    """The text is held by the checker, and delivered once the run fails."""
    pairs = astream(by_hand(ChunkModel(turns=[broken()])), shape, full_stream_checker)
    assert (await anext(pairs))[0].text == "So"
    with pytest.raises(ConnectionError, match="reset by peer"):
        await anext(pairs)


@pytest.mark.parametrize("shape", OPTIONS)
def test_what_models_write_inside_tools_is_shown_on_request(shape):
    """`internal=True`, in every shape."""
    make, expected = KINDS["a model in a tool"]
    found = left(list(stream(make(), shape, live, internal=True)))
    assert found == ["inner Rome", *expected]


def test_other_modes_pass_unchanged_and_in_their_place():
    """The items that are no tokens are the very items that LangGraph streams."""
    make, _ = KINDS["create_agent"]
    items = []

    def recorded():
        for item in make().stream(INPUT, stream_mode=["messages", "updates", "custom"]):
            items.append(item)
            yield item

    shown = list(final_answers(recorded(), checker=live, other_modes=True))
    others = [item for item in shown if item[0] == "updates"]
    assert others == [item for item in items if item[0] == "updates"]
    assert len(others) == 3
    assert left([item for item in shown if item[0] != "updates"]) == ["Sunny today."]
    last_token = max(n for n, item in enumerate(shown) if item[0] != "updates")
    assert shown.index(others[-1]) > last_token > shown.index(others[-2])


class Waiting(ChunkModel):
    """A model that goes on after its first token only when the client has it."""

    shown: Any
    waits: Any

    def _stream(self, *args, **kwargs):
        for number, chunk in enumerate(super()._stream(*args, **kwargs)):
            if number:
                self.waits.append(self.shown.wait(10))
            yield chunk


async def test_a_client_sees_the_answer_while_the_model_is_still_writing():
    """The model does not go on before its first token was shown; sync and async."""
    for run in (stream, astream):
        shown, waits = threading.Event(), []
        graph = model_graph(Waiting(turns=[text("Sunny", ".")], shown=shown, waits=waits))
        tokens = run(graph, "messages", first_chunk_checker)
        if run is stream:
            first = await asyncio.to_thread(next, tokens)
        else:
            first = await anext(tokens)
        shown.set()
        assert first[0].text == "Sunny"
        assert left([first, *await pairs_of(tokens)]) == ["Sunny."]
        assert waits
        assert all(waits)


def test_parallel_nodes_are_distinguished():
    """Two models at once: the one that calls shows nothing, the other one its whole answer."""
    builder = StateGraph(MessagesState)
    speaker = ChunkModel(turns=[text(*"I speak.")])
    for name, model in (("caller", agent_model()), ("speaker", speaker)):
        builder.add_node(name, lambda s, m=model: {"messages": [m.invoke(s["messages"])]})
        builder.add_edge(BEGIN, name)
    shown = final_answers(builder.compile().stream(INPUT, stream_mode="messages"))
    found = [(metadata["langgraph_node"], token.text) for token, metadata in shown if token.text]
    assert found == [("speaker", letter) for letter in "I speak."]


@pytest.mark.parametrize("patched", ["with_patching", "the middleware"])
@pytest.mark.parametrize("checker", [full_stream_checker, live])
def test_the_answer_of_a_repaired_turn(patched, checker):
    """A repair writes tool messages; none of them is an answer, and they retract nothing."""
    options = {"checkpointer": InMemorySaver()}
    if patched == "the middleware":
        options["middleware"] = [PatchToolCallsMiddleware()]
    graph = create_agent(agent_model(), [weather], **options)
    graph = with_patching(graph) if patched == "with_patching" else graph
    thread = {"configurable": {"thread_id": "1"}}
    opened = AIMessage("", tool_calls=[{"name": "weather", "args": {}, "id": "c0"}], id="a1")
    graph.update_state(thread, {"messages": [HumanMessage("hi", id="h"), opened]}, as_node="model")
    turn = {"messages": [HumanMessage("well?")]}
    shown = list(final_answers(graph.stream(turn, thread, stream_mode="messages"), checker=checker))
    assert left(shown) == SUNNY
    results = [m for m in graph.get_state(thread).values["messages"] if isinstance(m, ToolMessage)]
    assert [m.tool_call_id for m in results] == ["c0", "c1"]
