"""A call that the model did not finish writing never runs; a complete one always does.

A message without a call that can run, and without an answer, does not end the turn silently.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.agents.structured_output import ToolStrategy
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from kit import Desk, StrictModel, calls, loop, streamed
from langgraph_patch import (
    is_placeholder,
    patch_messages,
    patch_model,
    validate_messages,
    with_patching,
)
from langgraph_patch.history.calls import read_calls
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.chunk_model import ChunkModel, begin, piece
from support.running import in_turn, pairs
from support.truncated_agents import AGENTS, BARE, MODES, Seen, results, run, tools
from support.truncating_servers import ALL_WIRES, COMPLETE, CUTS, MALFORMED, TRUNCATED, WIRES

CUT_CALL = streamed(("mail", '{"to": "bob", "cc": "al'), reason="length")
"""LangChain completes it to `mail(to="bob", cc="al")`, and a bare graph sends the mail."""
WHOLE_CALL = streamed(("mail", '{"to": "bob"}'), reason="tool_calls")
BESIDE = streamed(("mail", '{"to": "al"}'), ("mail", '{"to": "bob", "cc": "a'), reason="length")
"""A whole call, and a cut one after it."""

WAYS = ("sync", "async", "events")


class Kind(NamedTuple):
    """A kind of node that leads to a model.

    Attributes:
        build: Makes the graph of a model, tools, and a counter of the runs of the node.
        asked: How often the model is called after a cut answer: 1 if the turn ends.
        key: The state key of its history.
    """

    build: Any
    asked: int = 2
    key: str = "messages"


class Handler(BaseCallbackHandler):
    """A handler of the application's own."""


def _loop(call: Any, tools: Any, *, state: Any = MessagesState, key: str = "messages") -> Any:
    """A loop around a function that is called with the state, in both ways."""
    builder = StateGraph(state)
    builder.add_node("agent", call)
    builder.add_node("tools", ToolNode(tools, messages_key=key))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda s: tools_condition(s, messages_key=key))
    builder.add_edge("tools", "agent")
    return builder


def patched(builder: Any, **options: Any) -> Any:
    """The graph, patched, with a checkpointer."""
    return with_patching(builder.compile(checkpointer=InMemorySaver()), **options)


def plain(model, tools, runs):
    """A model node."""

    def call(state):
        runs["agent"] += 1
        return {"messages": [model.invoke(state["messages"])]}

    return patched(_loop(call, tools))


def explicit_callbacks(model, tools, runs):
    """Explicit callbacks replace those that LangGraph passes on."""

    def call(state):
        runs["agent"] += 1
        config = {"callbacks": [Handler()]}
        return {"messages": [model.invoke(state["messages"], config=config)]}

    return patched(_loop(call, tools))


def retries(model, tools, runs):
    """A model that is asked again after an error."""
    return plain(model.with_retry(stop_after_attempt=2), tools, runs)


def fallbacks(model, tools, runs):
    """A model with another one behind it."""
    return plain(model.with_fallbacks([StrictModel()]), tools, runs)


def agent_in_a_node(model, tools, runs):
    """A function that calls an agent that is not patched, and returns its last message."""
    agent = create_agent(model, tools)

    def call(state):
        runs["agent"] += 1
        return {"messages": [agent.invoke({"messages": state["messages"]})["messages"][-1]]}

    return patched(_loop(call, tools))


def agent_in_a_tool(model, tools, runs):
    """A tool that calls an agent that is not patched."""
    agent = create_agent(model, tools)

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        runs["agent"] += 1
        return agent.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    boss = StrictModel(script=[calls(("delegate", {"task": "go"}), first=7)])
    return patched(loop(boss, [delegate]))


def subagent(model, tools, runs):
    """A subagent of deepagents."""
    task = {"description": "go", "subagent_type": "helper"}
    boss = StrictModel(script=[calls(("task", task), first=7)])
    helper = {
        "name": "helper",
        "description": "helps",
        "system_prompt": "help",
        "model": model,
        "tools": tools,
    }
    runs["agent"] += 1
    agent = create_deep_agent(boss, [], subagents=[helper], checkpointer=InMemorySaver())
    return with_patching(agent)


class Talk(TypedDict):
    """A history under another key."""

    talk: Annotated[list[AnyMessage], add_messages]
    messages: Annotated[list[AnyMessage], add_messages]


def another_key(model, tools, runs):
    """A node whose history is under a key that is not patched."""

    def call(state):
        runs["agent"] += 1
        return {"talk": [model.invoke(state["talk"])]}

    builder = _loop(call, tools, state=Talk, key="talk")
    builder.add_node("other", lambda state: {"messages": [AIMessage(str(len(state["messages"])))]})
    builder.add_edge(START, "other")
    return patched(builder)


def nested_with_another_key(model, tools, runs):
    """A graph that is a node, with a history under a key that is not patched."""

    class Private(TypedDict):
        talk: Annotated[list[AnyMessage], add_messages]

    def call(state):
        runs["agent"] += 1
        return {"talk": [model.invoke(state["talk"])]}

    builder = StateGraph(Talk)
    builder.add_node("team", _loop(call, tools, state=Private, key="talk").compile())
    builder.add_node("other", lambda state: {"messages": [AIMessage(str(len(state["messages"])))]})
    builder.add_edge(START, "team")
    builder.add_edge(START, "other")
    return patched(builder)


def nested(model, tools, runs):
    """A patched graph that is a node of a patched graph."""
    builder = StateGraph(MessagesState)
    builder.add_node("team", plain(model, tools, runs))
    builder.add_edge(START, "team")
    return patched(builder)


def asking(model, tools, runs):
    """A node that asks a human before its model; the human has answered."""

    def call(state):
        runs["agent"] += 1
        if len(state["messages"]) == 1:
            interrupt("may I?")
        return {"messages": [model.invoke(state["messages"])]}

    return patched(_loop(call, tools))


def sending(model, tools, runs):
    """The same, and it sends each call to the tools itself."""

    def call(state):
        runs["agent"] += 1
        merged = None
        for chunk in model.stream(state["messages"]):
            merged = chunk if merged is None else merged + chunk
        sends = [Send("tools", [made]) for made in merged.tool_calls]
        return Command(update={"messages": [merged]}, goto=sends)

    builder = StateGraph(MessagesState)
    builder.add_node("agent", call)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    return patched(builder)


REACHED = {
    "plain": Kind(plain),
    "explicit callbacks": Kind(explicit_callbacks),
    "retries": Kind(retries),
    "fallbacks": Kind(fallbacks),
    "an agent in a node": Kind(agent_in_a_node, asked=1),
    "an agent in a tool": Kind(agent_in_a_tool, asked=1),
    "a subagent of deepagents": Kind(subagent, asked=1),
    "a history under another key": Kind(another_key, asked=1, key="talk"),
    "a nested patched graph": Kind(nested),
    "a nested graph with another key": Kind(nested_with_another_key, asked=1, key="talk"),
    "a node that interrupts": Kind(asking, asked=1),
    "sends its calls": Kind(sending),
}
"""The kinds of node whose model the guard reaches."""


class Turn(NamedTuple):
    """What happened in a turn."""

    did: Counter[str]
    runs: Counter[str]
    asked: int
    history: list[Any]
    graph: Any
    model: StrictModel
    desk: Desk


THREAD: Any = {"configurable": {"thread_id": "1"}}


def run_graph(graph: Any, value: Any, way: str) -> None:
    """Run a graph, so that its models stream."""

    async def consume() -> None:
        if way == "async":
            async for _ in graph.astream(value, THREAD, stream_mode="messages"):
                pass
        else:
            async for _ in graph.astream_events(value, THREAD, version="v2"):
                pass

    if way == "sync":
        list(graph.stream(value, THREAD, stream_mode="messages"))
    else:
        asyncio.run(consume())


def play_turn(kind: Kind, script: list[Any], way: str) -> Turn:
    """One turn of an agent of a kind, and the answer to its question."""
    desk, runs = Desk(), Counter()

    @tool
    def mail(to: str, cc: str = "") -> str:
        """Send a mail."""
        desk.note(f"mail {to}")
        return f"sent to {to}"

    model = StrictModel(script=list(script), streaming=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = kind.build(model, [mail], runs)
        run_graph(graph, {kind.key: [HumanMessage("go")]}, way)
        if graph.get_state(THREAD).interrupts:
            run_graph(graph, Command(resume="yes"), way)
    history = graph.get_state(THREAD).values[kind.key]
    return Turn(desk.did, runs, len(model.seen), history, graph, model, desk)


@pytest.mark.parametrize(("name", "way"), in_turn(REACHED, WAYS))
def test_a_cut_call_never_runs(name, way):
    """Whatever stands between the node and its model. The thread answers the next message."""
    kind = REACHED[name]
    turn = play_turn(kind, [CUT_CALL], way)
    assert turn.did == {}
    assert turn.asked == kind.asked
    run_graph(turn.graph, {kind.key: [HumanMessage("hello")]}, way)
    assert turn.did == {}
    assert turn.graph.get_state(THREAD).values[kind.key][-1].text == "done"


@pytest.mark.parametrize(("name", "way"), in_turn(REACHED, WAYS))
def test_a_whole_call_runs_as_in_the_bare_graph(name, way):
    """It runs once, and the answer follows."""
    turn = play_turn(REACHED[name], [WHOLE_CALL], way)
    assert turn.did == {"mail bob": 1}
    assert turn.history[-1].text == "done"


@pytest.mark.parametrize(("name", "way"), in_turn(REACHED, WAYS))
def test_a_whole_call_beside_a_cut_one_runs(name, way):
    """The model is not asked again; the next one reads what was not run."""
    turn = play_turn(REACHED[name], [BESIDE], way)
    assert turn.did == {"mail al": 1}
    assert turn.history[-1].text == "done"
    read = {m.tool_call_id: m.text for m in turn.model.seen[-1] if m.type == "tool"}
    assert read["c1"] == "sent to al"
    # In a history that is not patched the cut call is dropped, so nothing has to answer it.
    assert "sent to bob" not in read.get("c2", "")


def raises(wire: str, cut: str) -> bool:
    """Whether the integration reports the end of the stream as an error itself."""
    return cut == "error" or (wire == "bedrock" and cut == "dead connection")


@pytest.mark.parametrize(
    ("wire", "name", "mode", "asynchronous", "cut"),
    pairs(WIRES, AGENTS, MODES, [False, True], CUTS),
)
def test_a_truncated_call_never_runs_and_the_thread_goes_on(wire, name, mode, asynchronous, cut):
    """A truncated call never runs and the thread goes on."""
    with WIRES[wire]() as server:
        server.cut = cut
        seen = run(AGENTS[name], server, mode=mode, asynchronous=asynchronous)
    assert seen.ran["wire_money"] == 0
    assert seen.goes_on
    assert validate_messages(seen.messages) == [] or "patch_model" in name
    if raises(wire, cut):
        assert seen.error is not None
        return
    assert seen.error is None
    assert seen.answered
    assert seen.ran["send_email"] == 1
    assert results(seen, "c1") == ["sent to bob"]
    if "patch_model" not in name:
        (answer,) = results(seen, "c2")
        # The second text is that of langchain, which is faster where only the middleware is used.
        assert any(
            text in answer
            for text in ("was not run", "has incomplete arguments", "could not be executed")
        )


@pytest.mark.parametrize(
    ("wire", "name"), in_turn(WIRES, ["hand-built", "hand-built, merges stream()", "middleware"])
)
def test_v1_content(wire, name):
    """Calls are content blocks of LangChain's own form there."""
    with WIRES[wire]() as server:
        server.calls = (TRUNCATED,)
        server.__dict__["model"] = server.new_model(output_version="v1")
        seen = run(AGENTS[name], server, mode="messages")
    assert seen.ran == {}
    assert seen.answered
    assert seen.goes_on


@pytest.mark.parametrize("name", ["hand-built", "middleware"])
def test_a_damaged_history_and_a_truncated_call_in_one_turn(name):
    """Both repairs are written."""
    thinking = [{"type": "thinking", "thinking": "two calls", "signature": "c2lnbmVk"}]
    call = {"name": "send_email", "args": {"to": "x"}, "id": "c9"}
    seen = Seen()
    with WIRES["anthropic"]() as server:
        server.calls = (TRUNCATED,)
        graph = AGENTS[name](server.model, tools(seen))
        config = {"configurable": {"thread_id": "1"}}
        history = [HumanMessage("hi"), AIMessage(thinking, tool_calls=[call])]
        graph.update_state(config, {"messages": history}, as_node="tools")
        graph.invoke({"messages": [("user", "book it")]}, config)
    messages = graph.get_state(config).values["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "human", "ai", "tool", "ai"]
    assert validate_messages(messages) == []
    assert seen.ran == {}


# --- what a node does with its model ---------------------------------------------------------

CUT_STREAM = [begin("wire_money", "c2"), piece('{"amount": 30')]


def patched_graph(call: Any, schema: Any = MessagesState, acall: Any = None) -> Any:
    """A graph with one patched node."""
    builder = StateGraph(schema)
    builder.add_node("model", RunnableLambda(call, acall) if acall else call)
    builder.add_edge(START, "model")
    return with_patching(builder.compile())


def merged(chunks: Any) -> AIMessageChunk:
    """What a node makes of a stream; an error ends it."""
    whole = None
    try:
        for chunk in chunks:
            whole = chunk if whole is None else whole + chunk
    except OSError:
        pass
    return whole


class Pydantic(BaseModel):
    """A pydantic state."""

    messages: Annotated[list, add_messages] = []


@dataclass
class Data:
    """A dataclass state."""

    messages: Annotated[list, add_messages] = field(default_factory=list)


OUTPUTS = {
    "a dict": (MessagesState, lambda m: {"messages": [m]}),
    "one message": (MessagesState, lambda m: {"messages": m}),
    "a command": (MessagesState, lambda m: Command(update={"messages": [m]})),
    "a command of pairs": (MessagesState, lambda m: Command(update=[("messages", [m])])),
    "commands": (MessagesState, lambda m: [Command(update={"messages": [m]})]),
    "a pydantic state": (Pydantic, lambda m: Pydantic(messages=[m])),
    "a dataclass state": (Data, lambda m: Data(messages=[m])),
}


UNUSUAL = ("a command of pairs", "a pydantic state", "a dataclass state")


@pytest.mark.parametrize("form", OUTPUTS)
def test_every_form_of_output_is_corrected_and_the_usual_ones_ask_again(form):
    """After any other form of output the turn ends, and the call does not run."""
    schema, output = OUTPUTS[form]
    model = ChunkModel(turns=[CUT_STREAM])

    def call(state):
        history = state["messages"] if isinstance(state, dict) else state.messages
        return output(merged(model.stream(history)))

    messages = patched_graph(call, schema).invoke({"messages": [HumanMessage("go")]})["messages"]
    if form in UNUSUAL:
        assert [m.type for m in messages] == ["human", "ai"]
        assert not messages[-1].tool_calls
        return
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]
    assert messages[-1].text == "done"
    assert [m.type for m in model.received[1]] == ["human", "ai", "tool"]
    assert validate_messages(messages) == []


def test_a_node_that_keeps_what_came_before_an_error():
    """A node that keeps what came before an error."""
    model = ChunkModel(turns=[[*CUT_STREAM, OSError("reset")]])
    graph = patched_graph(lambda state: {"messages": merged(model.stream(state["messages"]))})
    messages = graph.invoke({"messages": [HumanMessage("go")]})["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]


def test_a_node_that_stops_reading():
    """A node that stops reading."""
    model = ChunkModel(turns=[[*CUT_STREAM, piece("00}")]])
    kept = []

    def call(state):
        stream = model.stream(state["messages"])
        kept.append(stream)  # not closed when the node returns
        if len(kept) > 1:
            return {"messages": merged(stream)}
        return {"messages": next(stream) + next(stream)}

    messages = patched_graph(call).invoke({"messages": [HumanMessage("go")]})["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]


def test_a_truncated_message_among_others():
    """Two model runs in one node: only the message that is truncated is corrected."""
    whole = [begin("send_email", "c1", '{"to": "bob"}')]
    model = ChunkModel(turns=[whole, CUT_STREAM], streaming=True)

    def call(state):
        return {"messages": [model.invoke(state["messages"]), model.invoke(state["messages"])]}

    _, first, second = patched_graph(call).invoke({"messages": [HumanMessage("go")]})["messages"]
    assert [c["id"] for c in first.tool_calls] == ["c1"]
    assert not second.tool_calls


def test_the_updates_of_a_turn_that_asks_again():
    """The updates of a turn that asks again."""
    with WIRES["chat"]() as server:
        server.calls = (TRUNCATED,)
        seen = run(AGENTS["create_react_agent"], server, mode="updates")
    (update,) = seen.chunks
    assert [m.type for m in update["agent"]["messages"]] == ["ai", "tool", "ai"]


async def test_parallel_models_in_one_node():
    """Async: the chunks of several model runs come in turns."""
    cut, whole = (
        ChunkModel(turns=[CUT_STREAM]),
        ChunkModel(turns=[[begin("a", "c1"), piece('{"x": 1}')]]),
    )

    async def call(state):
        async def answer(model):
            whole = None
            async for chunk in model.astream(state["messages"]):
                whole = chunk if whole is None else whole + chunk
                await asyncio.sleep(0)
            return whole

        first, second = await asyncio.gather(answer(cut), answer(whole))
        return {"messages": [first, second]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call)
    builder.add_edge(START, "model")
    result = await with_patching(builder.compile()).ainvoke({"messages": [HumanMessage("go")]})
    _, first, second = result["messages"]
    assert not first.tool_calls
    assert first.invalid_tool_calls[0]["args"] == '{"amount": 30'
    assert second.tool_calls[0]["args"] == {"x": 1}


WHOLE, STREAM, EVENTS = "values", "messages", "v3"
"""How a graph runs: its model is not streamed, is streamed, or is read as v3 events."""
MODES = (WHOLE, STREAM, EVENTS)
TEXT_WIRES = ("chat", "responses", "deepseek")
"""Wires whose arguments are text, streamed or not."""
OBJECT_WIRES = ("anthropic", "bedrock", "gemini")
"""Wires whose arguments are objects if they are not streamed; Gemini's are in streams too."""
QUIET = pytest.mark.filterwarnings(
    "ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"
)
V3 = pytest.mark.needs(langgraph="1.2")


def ways(wires: Any, modes: Any = MODES) -> list[Any]:
    """Each wire in each mode, over all agents in turn; every second one runs asynchronously."""
    return [
        pytest.param(*row.values, id=row.id, marks=[QUIET, V3] if EVENTS in row.values else [])
        for row in pairs(wires, modes, AGENTS, [False, True])
    ]


each_way = pytest.mark.parametrize(("wire", "mode", "name", "asynchronous"), ways(ALL_WIRES))


def play(
    wire: str, mode: str, name: str, asynchronous: Any = None, **answer: Any
) -> tuple[Seen, int]:
    """`book it` and `hello`, and how often the model was asked in all."""
    with ALL_WIRES[wire]() as server:
        for attribute, value in answer.items():
            setattr(server, attribute, value)
        server.__dict__["model"] = server.new_model(streaming=mode != WHOLE)
        seen = run(AGENTS[name], server, mode=mode, asynchronous=bool(asynchronous))
        return seen, len(server.requests)


def assert_asked_again(seen: Seen, asked: int, name: str) -> None:
    """The model read that its call was not run, and answered."""
    assert seen.error is None
    assert seen.ran == {}
    assert asked == 3
    assert seen.answered
    assert seen.goes_on
    assert validate_messages(seen.messages) == []
    turn = ["human", "ai"] if name == "patch_model" else ["human", "ai", "tool", "ai"]
    assert [m.type for m in seen.messages] == [*turn, "human", "ai"]
    if name != "patch_model":
        (text,) = results(seen, "c2")
        assert is_placeholder(seen.messages[2])
        assert "was not run" in text


# --- calls that are no JSON ------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "mode", "name", "asynchronous"), ways(TEXT_WIRES))
def test_a_malformed_call_is_asked_for_again(wire, mode, name, asynchronous):
    """The model is asked once more, and answers."""
    seen, asked = play(wire, mode, name, asynchronous, calls=(MALFORMED,), cut=None)
    assert_asked_again(seen, asked, name)


@pytest.mark.parametrize(
    ("wire", "mode", "name", "asynchronous"), ways(["anthropic", "bedrock"], [STREAM, EVENTS])
)
def test_a_malformed_call_in_a_stream_is_asked_for_again(wire, mode, name, asynchronous):
    """These providers send objects otherwise, which are never malformed."""
    seen, asked = play(wire, mode, name, asynchronous, calls=(MALFORMED,), cut=None)
    assert_asked_again(seen, asked, name)


@pytest.mark.parametrize(("wire", "mode", "name", "asynchronous"), ways(["gemini"]))
def test_an_empty_message_with_a_malformed_reason_is_dropped(wire, mode, name, asynchronous):
    """The model is asked again with the same history: nothing of the first answer is stored."""
    seen, asked = play(wire, mode, name, asynchronous, calls=(), cut="malformed")
    assert (seen.error, seen.ran, asked) == (None, {}, 3)
    assert [m.text for m in seen.messages] == ["book it", "done", "hello", "re: hello"]


@pytest.mark.parametrize(("name", "wire", "mode"), in_turn(AGENTS, ["chat", "gemini"], MODES[:2]))
def test_a_second_unusable_message_ends_the_turn_and_is_logged(wire, name, mode, caplog):
    """The model is asked twice in the turn. The thread answers the next message."""
    calls, cut = ((MALFORMED,), None) if wire == "chat" else ((), "malformed")
    with caplog.at_level(logging.INFO, "langgraph_patch"):
        seen, asked = play(wire, mode, name, calls=calls, cut=cut, again=1)
    assert (seen.error, seen.ran, seen.answered, asked) == (None, {}, False, 3)
    assert seen.goes_on
    assert [record.levelname for record in caplog.records if "asked" in record.message] == ["INFO"]
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the turn of thread '1' may end here" in warning.message


def test_all_protections_at_once_ask_once():
    """The node, the middleware and the model are patched; the middleware asks again."""

    def build(model, used):
        middleware = [PatchToolCallsMiddleware()]
        agent = create_agent(
            patch_model(model), used, middleware=middleware, checkpointer=InMemorySaver()
        )
        return with_patching(agent)

    for wire, made, ending in (("chat", (MALFORMED,), None), ("gemini", (), "malformed")):
        with ALL_WIRES[wire]() as server:
            server.calls, server.cut, server.again = made, ending, 1
            seen = run(build, server)
            assert len(server.requests) == 3
        assert seen.goes_on


# --- calls that were cut at the token limit ---------------------------------------------------


@each_way
def test_a_call_that_was_cut_off_is_asked_for_again(wire, mode, name, asynchronous):
    """Whether the provider gives its raw text or an object."""
    seen, asked = play(wire, mode, name, asynchronous, calls=(TRUNCATED,), cut="max_tokens")
    assert_asked_again(seen, asked, name)


@each_way
def test_calls_before_the_one_that_was_cut_off_run(wire, mode, name, asynchronous):
    """They run once; the model is not asked again before their results."""
    seen, asked = play(wire, mode, name, asynchronous, cut="max_tokens")
    assert (seen.error, seen.ran) == (None, {"send_email": 1})
    assert asked == 3
    if name == "patch_model":  # nothing repairs the state of its graph
        return
    assert seen.answered
    assert seen.goes_on
    assert validate_messages(seen.messages) == []
    (text,) = results(seen, "c2")
    # The second text is that of calls that LangChain found invalid itself; the third one is
    # langchain's, which is faster where only the middleware is used.
    texts = ("was not run", "has incomplete arguments", "could not be executed")
    assert any(each in text for each in texts)


@pytest.mark.parametrize(("wire", "name"), in_turn(OBJECT_WIRES, BARE))
def test_a_bare_graph_runs_the_call_that_was_cut_off(wire, name):
    """Nothing in the message shows that keys are missing."""
    with ALL_WIRES[wire]() as server:
        server.__dict__["model"] = server.new_model(streaming=False)
        seen = run(BARE[name], server)
    assert seen.ran["wire_money"] == 1


@pytest.mark.parametrize(
    ("wire", "mode", "name"),
    [
        ("anthropic", WHOLE, "hand-built"),
        ("bedrock", WHOLE, "create_agent"),
        ("gemini", STREAM, "middleware"),
        pytest.param("gemini", EVENTS, "patch_model", marks=[QUIET, V3]),
    ],
)
def test_a_call_with_text_behind_it_is_complete(wire, mode, name):
    """The text was cut off, not the call."""
    complete = {"calls": (COMPLETE,), "behind": "I have sen", "cut": "max_tokens"}
    seen, _ = play(wire, mode, name, **complete)
    assert (seen.error, seen.ran) == (None, {"send_email": 1})


@pytest.mark.parametrize(
    ("wire", "mode", "name", "asynchronous"),
    [*ways(TEXT_WIRES), *ways(["anthropic", "bedrock"], [STREAM, EVENTS])],
)
def test_a_call_whose_text_is_complete_runs_at_the_limit(wire, mode, name, asynchronous):
    """The limit was reached behind it; the raw text decides where there is one."""
    seen, _ = play(wire, mode, name, asynchronous, calls=(COMPLETE,), cut="max_tokens")
    assert (seen.error, seen.ran, seen.answered) == (None, {"send_email": 1}, True)


@each_way
def test_complete_calls_run_as_in_the_bare_graph(wire, mode, name, asynchronous):
    """With the same requests, messages and chunks."""
    found = []
    for builds in (AGENTS, BARE):
        with ALL_WIRES[wire]() as server:
            server.cut, server.calls = None, (COMPLETE, ("c2", "wire_money", '{"amount": 3}'))
            server.__dict__["model"] = server.new_model(streaming=mode != WHOLE)
            seen = run(builds[name], server, mode=mode, asynchronous=asynchronous)
            texts = [(m.type, m.text) for m in seen.messages]
            found.append((seen.ran, texts, len(seen.chunks), len(server.requests)))
    if mode == EVENTS:  # their number depends on when the parts of a response arrive
        found = [(ran, texts, asked) for ran, texts, _, asked in found]
    assert found[0] == found[1]
    assert found[0][0] == {"send_email": 1, "wire_money": 1}


# --- the message -------------------------------------------------------------------------------

CALL = {"name": "mail", "args": {"to": "bob"}, "id": "c1"}
INVALID = {"name": "mail", "args": '{"to": b', "id": "c9", "error": "no JSON"}
USE = {"type": "tool_use", "name": "mail", "input": {"to": "bob"}, "id": "c1"}


def cut(content: Any = "", /, **fields: Any) -> AIMessage:
    """A message whose one call ended at the token limit of Anthropic."""
    metadata = {"stop_reason": "max_tokens"}
    return AIMessage(content, **{"tool_calls": [CALL], "response_metadata": metadata, **fields})


def answered(message: AIMessage, **options: Any) -> tuple[AIMessage, StrictModel]:
    """What a patched model makes of a message that is not streamed, and of each later one."""
    model = StrictModel(script=[message, message], **options)
    return patch_model(model).invoke("go"), model


REFUSED = {
    "a message with a text": cut("I write to Bob."),
    "its block is the last one": cut([{"type": "text", "text": "I write."}, USE]),
    "an empty text behind it": cut([USE, {"type": "text", "text": ""}]),
    "the context window was full": cut(
        response_metadata={"stop_reason": "model_context_window_exceeded"}
    ),
    "Bedrock": cut([USE], response_metadata={"stopReason": "max_tokens"}),
    "Gemini": cut(response_metadata={"finish_reason": "MAX_TOKENS"}),
    "two reasons that LangChain joined": cut(response_metadata={"finish_reason": "STOPMAX_TOKENS"}),
    "Vertex": cut(
        response_metadata={"finish_reason": "MAX_TOKENS", "model_provider": "google_vertexai"}
    ),
    "no arguments": cut(tool_calls=[{**CALL, "args": {}}]),
    "nested arguments": cut(tool_calls=[{**CALL, "args": {"a": [1, {"b": "}"}], "c": {}}}]),
    "a raw text that was cut off": cut([{**USE, "input": {}, "partial_json": '{"to": "bob"'}]),
    "a copy of Gemini's": cut(
        additional_kwargs={"function_call": {"name": "mail", "arguments": '{"to": "bob"}'}}
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_last_call_at_the_limit_is_refused_and_stays_so(name):
    """It is kept with an incomplete text: no later repair takes it for a complete call."""
    answer, model = answered(REFUSED[name].model_copy(deep=True))
    assert len(model.seen) == 2
    assert answer.tool_calls == []
    assert answer.additional_kwargs == {}
    (call,) = read_calls(answer)
    assert (call.id, call.name, call.source) == ("c1", "mail", "stopped")
    assert call.raw_args is not None
    repaired = patch_messages([HumanMessage("go"), answer, HumanMessage("hello")]).messages
    assert [m.type for m in repaired] == ["human", "ai", "tool", "human"]
    assert "was not run" in repaired[2].text
    assert validate_messages(repaired) == []


KEPT = {
    "a length of a provider with strict texts": cut(response_metadata={"finish_reason": "length"}),
    "another reason": cut(response_metadata={"stop_reason": "tool_use"}),
    "no reason": cut(response_metadata={}),
    "a text behind it": cut([USE, {"type": "text", "text": "I"}]),
    "a thought behind it": cut([USE, {"type": "thinking", "thinking": "hm"}]),
    "an invalid call, which is the cut one": cut([USE], invalid_tool_calls=[INVALID]),
    "a raw text that is complete": cut([{**USE, "input": {}, "partial_json": '{"to": "bob"}'}]),
    "another provider": cut(
        response_metadata={"finish_reason": "MAX_TOKENS", "model_provider": "cohere"}
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_any_other_call_is_kept(name):
    """A complete call is never refused."""
    answer, model = answered(KEPT[name].model_copy(deep=True))
    assert len(model.seen) == 1
    assert answer.tool_calls == KEPT[name].tool_calls


def test_the_last_of_two_equal_calls_is_refused():
    """The first one of the same id and arguments is complete."""
    answer, _ = answered(cut(tool_calls=[CALL, CALL]))
    assert (len(answer.tool_calls), len(answer.invalid_tool_calls)) == (1, 1)


def test_a_complete_call_that_a_cache_returns_is_kept():
    """The message was streamed when it was stored; its block has the raw text."""
    with ALL_WIRES["anthropic"]() as server:
        server.calls, server.cut = (COMPLETE,), "max_tokens"
        model = patch_model(server.new_model(cache=InMemoryCache()))
        answers = [model.invoke("book it") for _ in range(2)]
        assert len(server.requests) == 1
    assert [len(answer.tool_calls) for answer in answers] == [1, 1]


ANSWERS = {
    "a text": AIMessage("hello"),
    "nothing, and no reason": AIMessage(""),
    "a text, and a malformed reason": AIMessage(
        "hello", response_metadata={"finish_reason": "MALFORMED_FUNCTION_CALL"}
    ),
    "a text behind an invalid call": AIMessage(
        [{**USE, "id": "c9"}, {"type": "text", "text": "Done."}], invalid_tool_calls=[INVALID]
    ),
    "a call beside an invalid one": AIMessage("", tool_calls=[CALL], invalid_tool_calls=[INVALID]),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_not_asked_for_again(name):
    """Nor is a message with a call that can run."""
    _, model = answered(ANSWERS[name])
    assert len(model.seen) == 1


UNUSABLE = {
    "an invalid call": AIMessage("", invalid_tool_calls=[INVALID]),
    "a text that announces it": AIMessage("I write to Bob.", invalid_tool_calls=[INVALID]),
    "a malformed reason of Bedrock": AIMessage(
        [], response_metadata={"stopReason": "malformed_tool_use"}
    ),
    "a malformed reason of Gemini, and thoughts": AIMessage(
        [{"type": "thinking", "thinking": "hm"}],
        response_metadata={"finish_reason": "MALFORMED_FUNCTION_CALL"},
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_message_is_asked_for_again(name):
    """Once."""
    _, model = answered(UNUSABLE[name])
    assert len(model.seen) == 2


# --- the conditions -----------------------------------------------------------------------------

BAD = UNUSABLE["an invalid call"]


def graph_of(call: Any) -> Any:
    """A graph with one patched node."""
    builder = StateGraph(MessagesState).add_node("model", call).add_edge(START, "model")
    return with_patching(builder.compile(checkpointer=InMemorySaver()))


def turn(graph: Any, value: Any = None) -> list[Any]:
    """The messages after one turn."""
    config = {"configurable": {"thread_id": "1"}}
    return graph.invoke(value or {"messages": [HumanMessage("go")]}, config)["messages"]


def test_a_node_that_runs_a_tool_is_not_run_again(caplog):
    """The tool runs once, the turn ends, and the log says so."""
    ran = []

    @tool
    def mail() -> str:
        """Send a mail."""
        ran.append("mail")
        return "sent"

    model = StrictModel(script=[BAD])

    def call(state):
        mail.invoke({})
        return {"messages": [model.invoke(state["messages"])]}

    assert [m.type for m in turn(graph_of(call))] == ["human", "ai"]
    assert ran == ["mail"]
    assert "may end here" in caplog.text


def test_a_node_that_asked_a_human_is_not_run_again():
    """The human is asked once."""
    model = StrictModel(script=[BAD])

    def call(state):
        interrupt("may I?")
        return {"messages": [model.invoke(state["messages"])]}

    graph = graph_of(call)
    turn(graph)
    assert [m.type for m in turn(graph, Command(resume="yes"))] == ["human", "ai"]
    assert len(model.seen) == 1


def test_the_second_run_of_a_model_has_a_run_id_of_its_own():
    """Tracers keep runs by their ids."""
    started = []

    class Handler(BaseCallbackHandler):
        def on_chat_model_start(self, *_, run_id, **__):
            started.append(run_id)

    model = StrictModel(script=[BAD])
    run_id = "00000000-0000-0000-0000-000000000001"
    patch_model(model).invoke("go", {"run_id": run_id, "callbacks": [Handler()]})
    assert len(set(started)) == len(started) == 2


def middleware_agent(model: Any, *inner: Any) -> Any:
    """An agent with the middleware, and others between it and the model."""
    middleware = [PatchToolCallsMiddleware(), *inner]
    return create_agent(model, [], middleware=middleware, checkpointer=InMemorySaver())


def test_a_middleware_that_runs_a_tool_is_not_called_again():
    """The tool runs once."""
    ran = []

    @tool
    def look_up() -> str:
        """Look it up."""
        ran.append("look_up")
        return "found"

    @wrap_model_call
    def looking(request, handler):
        look_up.invoke({})
        return handler(request)

    turn(middleware_agent(StrictModel(script=[BAD]), looking))
    assert ran == ["look_up"]


def test_a_model_in_a_tool_of_a_patched_graph_asks_again():
    """The loop in the tool repairs its own history, so its model may be asked again."""
    model = StrictModel(script=[BAD])
    patched = patch_model(model)

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        return patched.invoke(task).text

    call = AIMessage("", tool_calls=[{"name": "delegate", "args": {"task": "go"}, "id": "c1"}])
    boss = create_agent(StrictModel(script=[call]), [delegate], checkpointer=InMemorySaver())
    messages = turn(with_patching(boss))
    assert [m.text for m in messages] == ["go", "", "done", "done"]
    assert [[m.type for m in seen] for seen in model.seen] == [["human"], ["human", "ai", "tool"]]


@pytest.mark.parametrize("message", [BAD, cut(tool_calls=[{**CALL, "name": "Answer"}])])
@pytest.mark.parametrize("protects", ["the node", "the middleware"])
def test_a_structured_answer_is_asked_for_again(message, protects):
    """`create_agent` reads the arguments of a call as the answer."""

    class Answer(BaseModel):
        """The answer."""

        to: str

    whole = AIMessage("", tool_calls=[{"name": "Answer", "args": {"to": "al"}, "id": "c2"}])
    model = StrictModel(script=[message.model_copy(deep=True), whole])
    middleware = [PatchToolCallsMiddleware()] if protects == "the middleware" else []
    agent = create_agent(model, [], middleware=middleware, response_format=ToolStrategy(Answer))
    graph = with_patching(agent) if protects == "the node" else agent
    result = graph.invoke({"messages": [HumanMessage("go")]})
    assert result["structured_response"] == Answer(to="al")
    assert len(model.seen) == 2
    assert validate_messages(result["messages"]) == []


def test_an_agent_in_a_node_does_not_run_a_call_that_was_cut_off(caplog):
    """Its history is not patched, so the call is dropped."""
    ran = []

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        ran.append(to)
        return "sent"

    agent = create_agent(StrictModel(script=[cut([USE])]), [mail])
    messages = turn(graph_of(lambda state: {"messages": agent.invoke(state)["messages"][-1:]}))
    assert ran == []
    assert (messages[-1].tool_calls, messages[-1].invalid_tool_calls) == ([], [])
    assert "dropped a tool call" in caplog.text


def test_a_router_that_reads_invalid_calls_is_asked_after_the_second_answer():
    """The package asks first; a second malformed call reaches the application's own node."""
    routed = []

    def build(model):
        def call(state):
            return {"messages": [model.invoke(state["messages"])]}

        def own(state):
            routed.append(len(model.seen))
            return {"messages": [AIMessage("sorry")]}

        def route(state):
            return "own" if state["messages"][-1].invalid_tool_calls else END

        builder = StateGraph(MessagesState).add_node("model", call).add_node("own", own)
        builder.add_edge(START, "model").add_conditional_edges("model", route, ["own", END])
        return with_patching(builder.compile(checkpointer=InMemorySaver()))

    turn(build(StrictModel(script=[BAD])))
    assert routed == []
    turn(build(StrictModel(script=[BAD, BAD])))
    assert routed == [2]
