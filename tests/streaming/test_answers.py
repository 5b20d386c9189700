"""`final_answers`: which tokens, when, and retractions; over streams by hand and real graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy
from langgraph_supervisor import create_supervisor
from pydantic import BaseModel

from kit import StrictModel, loop, model_node, streamed
from langgraph_patch import with_patching
from langgraph_patch.errors import MessagesError, PatchError
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.streaming import (
    RETRACTED_KEY,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
)
from support.streams import INPUT, LAST, REST, Source, call, left, live, same, say, weather
from support.streams import START as BEGUN

each_checker = pytest.mark.parametrize(
    "checker", [full_stream_checker, live], ids=lambda each: each.__name__
)


def token(task: str, id_: str, message: Any, **metadata: Any) -> tuple[Any, dict[str, Any]]:
    """A pair as `stream_mode="messages"` gives it; the task is a namespace, `""` is unknown."""
    node = task.partition(":")[0] if "|" not in task else task.rpartition("|")[2].partition(":")[0]
    place = {"langgraph_checkpoint_ns": task} if ":" in task else {}
    message = message.model_copy(update={"id": id_})
    return message, {"langgraph_node": node, **place, **metadata}


def tokens(task: str, *parts: tuple[str, Any]) -> list[Any]:
    """The pairs of one task: an id and a chunk each."""
    return [token(task, id_, chunk) for id_, chunk in parts]


def result(call_id: str, **fields: Any) -> ToolMessage:
    """A result."""
    return ToolMessage("sunny", tool_call_id=call_id, **fields)


@each_checker
def test_what_was_passed_on_is_freed(checker):
    """Of a message that has ended its last chunk is kept."""
    made, alive = [], []

    def stream():
        for text in ("It ", "rains", ".", ""):
            chunk = AIMessageChunk(text, id="a", chunk_position=None if text else "last")
            made.append(ref(chunk))
            yield chunk, {}
            del chunk
            alive.append(sum(each() is not None for each in made))

    deque(final_answers(stream(), checker=checker), maxlen=0)
    assert alive == [1, 2, 3, 1]


# --- messages that are answers ----------------------------------------------------------------


def answers(items: list[Any], checker: Any = full_stream_checker, **options: Any) -> list[Any]:
    """What is yielded of a stream."""
    return list(final_answers(Source(items), checker=checker, **options))


def test_what_a_checker_takes_for_a_call_is_no_answer():
    """Before the call has arrived, and if none does."""
    items = tokens("", ("a", say("Let me see.")), ("a", LAST))
    assert answers(items, checker=lambda turn: turn.wrote or None) == []


def test_an_answer_without_a_last_chunk_passes_at_the_end_of_the_stream():
    """A message of which only empty chunks came is no answer, nor is one that counts as a call."""
    stream = tokens("a", ("resp_1", say([])), ("1", say("Good ")))
    assert same(answers(stream), stream[1:])
    assert answers(stream, lambda turn: turn.ended or None) == []
    late = tokens("a", ("1", say("Good ")), ("1", BEGUN))
    assert answers(late, lambda turn: False if turn.ended else None) == []


# --- tools and middleware ---------------------------------------------------------------------

TURN = tokens("agent:1", ("1", BEGUN), ("1", LAST))
SECOND = token("agent:1", "1", call("", index=1, id="c2", name="weather"))
RESULT = token("tools:2", "r1", result("c1"))
PLACEHOLDER = result("c1", additional_kwargs={PLACEHOLDER_KEY: {"cause": "unknown"}})


@each_checker
@pytest.mark.parametrize("node", ["tools", "my_tools"])
def test_what_models_write_inside_tools_is_no_answer(checker, node):
    """The node `tools` is known at once, another one when it answers the call; both on request."""
    stream = [
        *TURN,
        *tokens(f"{node}:2", ("2", say("inner")), ("2", LAST)),
        *tokens(f"{node}:2|agent:3", ("3", say("deeper")), ("3", LAST)),
        token(f"{node}:2", "r", result("c1")),
        *tokens("agent:4", ("4", say("Yes.")), ("4", LAST)),
    ]
    shown = answers(stream, checker)
    assert left(shown) == (["Yes."] if node == "tools" else ["deeper", "Yes."])
    reasons = [m[RETRACTED_KEY] for t, m in shown if isinstance(t, RemoveMessage)]
    assert reasons == ([] if node == "tools" else ["inside_tool"])
    assert left(answers(stream, checker, internal=True)) == ["inner", "deeper", "Yes."]


def test_a_model_in_a_node_called_tools(caplog):
    """A WARNING says that the name of its node hides it, unless a result comes from there."""
    stream = [*tokens("tools:2", ("2", say("inner")), ("2", LAST))]
    assert left(answers(stream, full_stream_checker)) == []
    assert "final_answers shows nothing that models wrote in the node 'tools'" in caplog.text
    caplog.clear()
    answers([*TURN, *stream, RESULT], full_stream_checker)
    assert caplog.text == ""


ENDS: dict[str, tuple[list[Any], list[str]]] = {
    "a tool that was called before this run": ([RESULT], ["sunny"]),
    "one of two tools": ([TURN[0], SECOND, TURN[1], RESULT], []),
    "two tools": (
        [TURN[0], SECOND, TURN[1], RESULT, token("tools:3", "r2", result("c2"))],
        ["sunny", "sunny"],
    ),
    "the result of a subgraph, which comes twice": ([*TURN, RESULT, RESULT], ["sunny"]),
    "two results without ids": (
        [(result("c8"), RESULT[1]), (result("c9"), RESULT[1])],
        ["sunny", "sunny"],
    ),
    "an empty chunk after the tool": ([*TURN, RESULT, token("agent:3", "3", say())], ["sunny"]),
    "a call after the tool": ([*TURN, RESULT, *tokens("agent:3", ("3", SECOND[0]))], []),
    "an agent inside the tool": (
        [*TURN, token("tools:2|tools:3", "x", result("x")), RESULT],
        ["sunny"],
    ),
    "a placeholder": ([*TURN, token("agent:1", "r1", PLACEHOLDER)], []),
    "a model that answers older calls itself": (
        [*TURN, token("agent:2", "2", AIMessage("Yes.")), token("agent:2", "r1", result("c1"))],
        ["Yes.", "sunny"],
    ),
    "a node that answers the calls of a graph in it": (
        [
            *tokens("team:1|agent:2", ("1", BEGUN), ("1", LAST)),
            token("team:1", "2", AIMessage("Yes.")),
            token("team:1", "r1", result("c1")),
        ],
        ["Yes.", "sunny"],
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_tool_messages_are_the_answer_of_a_run_that_ends_with_them(name):
    """If no model follows, and all calls beside them have results."""
    stream, expected = ENDS[name]
    assert [shown.text for shown, _ in answers(stream)] == expected


@pytest.mark.parametrize(
    ("pause", "number"),
    [
        (("updates", {"__interrupt__": ()}), 1),
        (("values", SimpleNamespace(messages=[])), 1),  # a state that is no dict
        ({"type": "values", "ns": (), "data": {}, "interrupts": ()}, 1),
        (("updates", {"__interrupt__": ("approve?",)}), 0),
        (("values", {"__interrupt__": ["approve?"]}), 0),
        ({"type": "values", "ns": (), "data": {}, "interrupts": ("approve?",)}, 0),
    ],
)
def test_a_paused_run_has_no_tool_message_as_answer(pause, number):
    """The pause is seen in the other modes, if there are any."""
    stream = [*(("messages", each) for each in (*TURN, RESULT)), pause, ("updates", {"agent": {}})]
    assert len(answers(stream)) == number


# --- the items of a stream --------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        {"agent": {}},
        (say("a"), "metadata"),
        ("messages", {"type": "ai"}),
        ({"type": "tool", "content": "no call id"}, {}),
        SimpleNamespace(event="messages"),
    ],
)
def test_what_is_no_message_is_a_clear_error(item):
    """The item is quoted, the mode is named; an error of LangChain's classes is the cause."""
    expected = (
        r"Expected what graph.stream\(..., stream_mode='messages'\) yields, or the same .*; got"
    )
    with pytest.raises(MessagesError, match=expected) as raised:
        answers([item])
    assert f"got {item!r:.50}" in str(raised.value)
    is_dict = isinstance(item, tuple) and isinstance(item[0], dict)
    assert (raised.value.__cause__ is not None) == is_dict


def part(event: str, data: Any) -> Any:
    """An item of the SDK's stream."""
    return SimpleNamespace(event=event, data=data)


def test_the_report_of_a_server_that_the_run_failed(io):
    """It is an error, after the held text; or an item of the stream, if other modes are."""
    text = token("a", "1", say("So"))
    report = part("error", {"error": "ValueError", "message": "no"})
    items = [part("metadata", {}), part("messages", list(text)), part("messages", RESULT), report]
    shown = io.answers(Source(items))
    assert same([next(shown)], [text])
    with pytest.raises(PatchError, match=r"run failed: .*ValueError.*Pass other_modes=True"):
        next(shown)
    every = list(io.answers(Source(items), other_modes=True))
    assert every == [items[0], text, report]


LACKING = {
    "updates": {"stream_mode": ["updates"]},
    "values": {"stream_mode": ["values"]},
    "values of graphs": {"stream_mode": ["custom", "values"], "subgraphs": True},
    "v2": {"stream_mode": "updates", "version": "v2"},
}


@pytest.mark.parametrize("shape", LACKING)
def test_a_stream_without_the_mode_messages_is_an_error(io, shape):
    """A model has answered, and nothing can be shown of it; other items come before the error."""
    graph = StateGraph(MessagesState).add_node("agent", model_node(StrictModel()))
    patched = with_patching(graph.set_entry_point("agent").compile())
    shown = io.answers(io.stream(patched, INPUT, **LACKING[shape]), other_modes=True)
    assert next(shown)
    with pytest.raises(MessagesError, match="no item of the mode 'messages': stream with "):
        list(shown)


def test_a_run_without_an_answer_is_no_error():
    """Nothing was written by a model, whatever the history has."""
    old = {"messages": [AIMessage("old")]}
    for items in (
        [("values", old), ("updates", {"node": None}), ("values", old)],
        [(("a:1",), "values", {"messages": []}), (("b:1",), "values", old)],
        [("custom", old), ("updates", {"__interrupt__": ()})],
        [part("metadata", {}), part("values", {"messages": [{"type": "ai", "content": "old"}]})],
    ):
        assert answers(items) == []
    wrote = part("updates", {"agent": {"messages": [{"type": "ai", "content": "new"}]}})
    with pytest.raises(MessagesError, match=r"mode 'updates' .* for a server"):
        answers([wrote])


@pytest.mark.parametrize("event", ["messages|agent:1", "messages-tuple"])
def test_a_message_of_a_server_is_a_dict(event):
    """As `messages-tuple` gives it: the answer is a message of LangChain's."""
    fields = {"type": "AIMessageChunk", "content": "Yes.", "id": "1", "chunk_position": "last"}
    asked = {"type": "human", "content": "hi", "id": "0"}
    metadata = {"langgraph_node": "agent"}
    stream = [part(event, [each, metadata]) for each in (asked, fields)]
    expected = AIMessageChunk("Yes.", id="1", chunk_position="last")
    assert answers(stream) == [(expected, metadata)]


# --- real graphs ------------------------------------------------------------------------------

SUNNY = ["Sunny today."]


class City(BaseModel):
    """A structured answer."""

    city: str


@tool(return_direct=True)
def direct(city: str) -> str:
    """The weather, as the answer of the run."""
    return f"sunny in {city}"


@tool
def ask_agent(city: str) -> str:
    """Ask another agent."""
    inner = create_agent(agent_model(), [weather])
    return inner.invoke({"messages": [("user", city)]})["messages"][-1].text


def answer() -> list[Any]:
    """A turn with an answer."""
    return [say("Sunny"), say(" today.")]


def broken() -> list[Any]:
    """A turn that fails in the middle of its answer."""
    return [say("So"), ConnectionError("reset by peer")]


def agent_model(name: str = "weather") -> StrictModel:
    """A model that writes, calls a tool, and answers."""
    called = streamed((name, '{"city": "Rome"}'))
    return StrictModel(script=[[say("Let me see."), say(" "), *called], answer()])


def by_hand(model: Any) -> Any:
    """Model, tools, model."""
    return loop(model, [weather]).compile()


def supervisor() -> Any:
    """A supervisor that transfers to an agent, which answers; then the supervisor ends."""
    transfer = streamed(("transfer_to_helper", "{}"), first=9)
    boss = StrictModel(script=[[say("I ask."), *transfer], [say("It is done.")]])
    helper = create_agent(agent_model(), [weather], name="helper")
    return create_supervisor([helper], model=boss).compile()


def side_by_side() -> Any:
    """Two models at once: one calls a tool, the other one answers."""
    builder = StateGraph(MessagesState)
    for name, model in (("caller", agent_model()), ("speaker", StrictModel(script=[answer()]))):
        builder.add_node(name, model_node(model))
        builder.add_edge(START, name)
    return builder.compile()


KINDS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a graph by hand": (lambda: by_hand(agent_model()), SUNNY),
    "create_agent": (lambda: create_agent(agent_model(), [weather]), SUNNY),
    "a model without streaming": (
        lambda: create_agent(StrictModel(script=[AIMessage("whole")], disable_streaming=True), []),
        ["whole"],
    ),
    "return_direct": (lambda: create_agent(agent_model("direct"), [direct]), ["sunny in Rome"]),
    "ToolStrategy": (
        lambda: create_agent(agent_model("City"), [], response_format=ToolStrategy(City)),
        ["Returning structured response: city='Rome'"],
    ),
    "an agent in a tool": (lambda: create_agent(agent_model("ask_agent"), [ask_agent]), SUNNY),
    "a supervisor": (supervisor, ["Sunny today.", "It is done."]),
    "two models at once": (side_by_side, SUNNY),
}
"""Kind of agent -> how to make it, and the answers that a client must have in the end."""


def attempts() -> StrictModel:
    """A model that fails once, then answers."""
    return StrictModel(script=[broken(), answer()])


def retrying() -> Any:
    """A node that is run again."""
    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", model_node(attempts()), retry_policy=policy)
    return builder.add_edge(START, "agent").compile()


RETRIES: dict[str, Callable[[], Any]] = {
    "RetryPolicy": retrying,
    "with_retry": lambda: by_hand(attempts().with_retry(wait_exponential_jitter=False)),
    "with_fallbacks": lambda: by_hand(
        StrictModel(script=[broken()]).with_fallbacks([StrictModel(script=[answer()])])
    ),
    "ModelRetryMiddleware": lambda: create_agent(
        attempts(), middleware=[ModelRetryMiddleware(initial_delay=0.001, jitter=False)]
    ),
    "ModelFallbackMiddleware": lambda: create_agent(
        StrictModel(script=[broken()]),
        middleware=[ModelFallbackMiddleware(StrictModel(script=[answer()]))],
    ),
}
"""Everything that calls a model again -> a graph of which the first attempt fails."""


SHAPES: dict[str, dict[str, Any]] = {
    "messages": {"stream_mode": "messages"},
    "a list of modes": {"stream_mode": ["updates", "messages", "values"]},
    "subgraphs": {"stream_mode": "messages", "subgraphs": True},
    "a list, subgraphs": {"stream_mode": ["messages", "updates"], "subgraphs": True},
    "v2": {"stream_mode": ["messages", "values"], "version": "v2"},
    "v2, subgraphs": {"stream_mode": "messages", "subgraphs": True, "version": "v2"},
}


def in_turn(names: dict[str, Any], *, first: int = 0) -> list[Any]:
    """Each name with the next shape, sync and async in turn."""
    shapes = [*SHAPES]
    return [(name, shapes[(n + first) % 6], n % 2 == 0) for n, name in enumerate(names)]


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize(("kind", "shape", "io"), in_turn(KINDS), indirect=["io"])
def test_every_kind_of_agent_and_every_shape(io, kind, shape):
    """A client has the answers in the end, each once, and nothing else."""
    make, expected = KINDS[kind]
    for checker in (live, full_stream_checker):
        stream = io.stream(make(), INPUT, **SHAPES[shape])
        assert left(list(io.answers(stream, checker=checker))) == expected


@pytest.mark.parametrize(("name", "shape", "io"), in_turn(RETRIES, first=1), indirect=["io"])
def test_a_failed_attempt_is_never_part_of_an_answer(io, name, shape):
    """Five mechanisms that call a model again: the answer, once; early text is retracted."""
    for checker, expected in ((full_stream_checker, []), (live, ["failed_attempt"])):
        stream = io.stream(RETRIES[name](), INPUT, **SHAPES[shape])
        shown = list(io.answers(stream, checker=checker))
        assert left(shown) == SUNNY
        assert [m[RETRACTED_KEY] for t, m in shown if isinstance(t, RemoveMessage)] == expected


def test_a_late_call_retracts_what_was_shown(io):
    """The retraction comes with the call, once; nothing more of the message passes."""
    chunks = (say("Let "), say("me"), BEGUN, say("Hm"), REST, LAST)
    source = Source(tokens("a", *(("1", chunk) for chunk in chunks)))
    shown = io.answers(source, checker=first_chunk_checker)
    assert same([next(shown), next(shown)], source.items[:2])
    assert source.read == 2
    retraction, metadata = next(shown)
    assert source.read == 3
    assert retraction == RemoveMessage(id="1")
    assert metadata == {"langgraph_node": "a", "langgraph_patch_retracted": "tool_call"}
    assert list(shown) == []
