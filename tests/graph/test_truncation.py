"""A call that the model did not finish writing never runs; a complete one always does.

A message without a call that can run, and without an answer, does not end the turn silently.
`tests/server/test_truncation_providers.py` shows the same with the integrations of providers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from typing import Annotated, Any, NamedTuple

import pytest
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
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from kit import STATES, Agent, StrictModel, above, calls, history_of, loop, streamed
from langgraph_patch import (
    is_placeholder,
    patch_messages,
    patch_model,
    validate_messages,
    with_patching,
)
from langgraph_patch.history.calls import read_calls
from langgraph_patch.middleware import PatchToolCallsMiddleware

COMPLETE = ("mail", '{"to": "al"}')
CUT = ("mail", '{"to": "bo')
"""LangChain completes it to `mail(to="bo")`, and a bare graph sends the mail."""
MALFORMED = ("mail", '{"to": "bo",,}')
"""No JSON, though the model finished it."""

QUIET = pytest.mark.filterwarnings(
    "ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"
)


# --- what providers send -----------------------------------------------------------------------


def text(named: Any, reason: Any, *, whole: bool) -> Any:
    """Arguments are text, streamed or not: OpenAI and most others."""
    if not whole:
        return streamed(*named, reason=reason and "length")
    raw = [
        {"type": "function", "id": f"c{i}", "function": {"name": name, "arguments": args}}
        for i, (name, args) in enumerate(named, 1)
    ]  # `AIMessage` parses these strictly
    metadata = {"finish_reason": reason and "length"}
    return AIMessage("", additional_kwargs={"tool_calls": raw}, response_metadata=metadata)


def objects(named: Any, reason: Any, *, whole: bool) -> Any:
    """Arguments are objects, also in streams: Gemini."""
    metadata = {"finish_reason": reason and "MAX_TOKENS", "model_provider": "google_genai"}
    made = calls(*((name, as_object(raw)) for name, raw in named), response_metadata=metadata)
    if whole:
        return made
    chunks = [
        AIMessageChunk(
            "", tool_call_chunks=[{**call, "args": json.dumps(call["args"]), "index": i}]
        )
        for i, call in enumerate(made.tool_calls)
    ]
    return [*chunks, AIMessageChunk("", response_metadata=metadata)]


def blocks(named: Any, reason: Any, *, whole: bool) -> Any:
    """Arguments are text in streams and objects otherwise: Anthropic, Bedrock."""
    provider = {"model_provider": "anthropic"}
    metadata = {"stop_reason": reason and "max_tokens", **provider}
    uses = [{"type": "tool_use", "id": f"c{i}", "name": n} for i, (n, _) in enumerate(named, 1)]
    if whole:
        made = calls(*((name, as_object(raw)) for name, raw in named), response_metadata=metadata)
        made.content = [
            {**use, "input": call["args"]} for use, call in zip(uses, made.tool_calls, strict=True)
        ]
        return made
    chunks = []
    for index, (use, (name, raw)) in enumerate(zip(uses, named, strict=True)):
        begun = {"name": name, "id": use["id"], "args": "", "index": index}
        parts = [({**use, "input": {}, "index": index}, begun)]
        for place in range(0, len(raw), 4):
            piece = raw[place : place + 4]
            block = {"type": "input_json_delta", "partial_json": piece, "index": index}
            parts.append((block, {"name": None, "id": None, "args": piece, "index": index}))
        chunks += [
            AIMessageChunk([block], tool_call_chunks=[part], response_metadata=provider)
            for block, part in parts
        ]
    return [*chunks, AIMessageChunk([], response_metadata=metadata)]


def as_object(raw: str) -> Any:
    """What a provider makes of arguments: what is there of them."""
    return json.loads(raw if raw.endswith("}") else raw + '"}')


def empty(_: Any, __: Any, *, whole: bool) -> Any:
    """What Gemini returns instead of a call that it could not read."""
    reason = {"finish_reason": "MALFORMED_FUNCTION_CALL"}
    kind = AIMessage if whole else AIMessageChunk
    return kind("", response_metadata=reason) if whole else [kind("", response_metadata=reason)]


SHAPES = {"text": text, "blocks": blocks, "objects": objects, "empty": empty}
WAYS = ("invoke", "stream", "v3")
"""How a graph runs: its model is not streamed, is streamed, or is read as v3 events."""
EVERY = [(shape, way) for shape in [*SHAPES][:3] for way in WAYS]


# --- agents -------------------------------------------------------------------------------------


def merging(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    """A loop whose node merges the chunks of its model itself, patched."""
    return with_patching(bare_merging(model, tools, saver), **options)


def bare_merging(model: Any, tools: Any, saver: Any) -> Any:
    """The same, not patched."""

    def call(state):
        return {"messages": merged(model.stream(state["messages"]))}

    async def acall(state):
        return {"messages": merged([chunk async for chunk in model.astream(state["messages"])])}

    builder = loop(model, tools)
    builder.nodes["agent"].runnable = RunnableLambda(call, acall, name="agent")
    return builder.compile(checkpointer=saver)


def merged(chunks: Any) -> Any:
    """What a node makes of a stream; an error ends it."""
    whole = None
    try:
        for chunk in chunks:
            whole = chunk if whole is None else whole + chunk
    except OSError:
        pass
    return whole


def bare_loop(model: Any, tools: Any, saver: Any) -> Any:
    """A loop, not patched."""
    return loop(model, tools).compile(checkpointer=saver)


def bare_agent(model: Any, tools: Any, saver: Any) -> Any:
    """An agent of LangChain, not patched."""
    return create_agent(model, tools, checkpointer=saver)


def patched_model(model: Any, tools: Any, saver: Any) -> Any:
    """A loop that is not patched around a model that is."""
    return bare_loop(patch_model(model), tools, saver)


AGENTS: dict[str, Any] = {
    "hand_built": "hand_built",
    "merging": merging,
    "create_agent": "create_agent",
    "middleware": "middleware",
    "patched_model": patched_model,
}
BARE = {
    "hand_built": bare_loop,
    "merging": bare_merging,
    "create_agent": bare_agent,
}


def in_turn(first: Any, *others: Any) -> list[Any]:
    """Each value of the first axis once, those of the others in turn."""
    axes = [list(each) for each in others]
    rows = [(*_tuple(a), *(each[i % len(each)] for each in axes)) for i, a in enumerate(first)]
    return [pytest.param(*row, id="-".join(map(str, row)), marks=QUIET) for row in rows]


def pairs(first: Any, second: Any, *others: Any) -> list[Any]:
    """Each value of the first axis with each of the second, those of the others in turn."""
    return in_turn([(*_tuple(a), *_tuple(b)) for a in first for b in second], *others)


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


ASYNC = (False, True, False, True, True, False, True)
"""Of a length of its own, so that it meets each value of the other axes."""


def agent_that_says(
    name: str, way: str, *script: Any, asynchronous: bool = False, kinds: Any = AGENTS
) -> Agent:
    """An agent whose model says what the script has, and then `done`."""
    agent = Agent(kinds[name], *script, asynchronous=asynchronous)
    agent.model.streaming = not is_whole(way, name)
    return agent


def is_whole(way: str, name: str) -> bool:
    """Whether the model is not streamed."""
    return way == "invoke" and name != "merging"


def said(shape: str, way: str, name: str, *named: Any, reason: Any = "limit") -> Any:
    """A message with these calls, streamed or not."""
    return SHAPES[shape](named, reason, whole=is_whole(way, name))


def turn(agent: Agent, way: str, message: str = "go") -> list[Any]:
    """One turn; what its stream gave."""
    value = {"messages": [HumanMessage(message)]}
    if way != "v3":
        return agent.stream(value, "values" if way == "invoke" else "messages")
    if not agent.asynchronous:
        return list(agent.graph.stream_events(value, agent.config, version="v3"))

    async def events() -> list[Any]:
        stream = await agent.graph.astream_events(value, agent.config, version="v3")
        return [event async for event in stream]

    return asyncio.run(events())


def assert_asked_again(agent: Agent, name: str) -> None:
    """The model read that its call was not run, and answered; the thread goes on."""
    assert agent.desk.did == {}
    assert len(agent.model.seen) == 2
    placeholder = agent.model.seen[1][-1]
    assert is_placeholder(placeholder)
    assert "was not run" in placeholder.text
    kept = [] if name == "patched_model" else ["ai", "tool"]  # nothing repairs the state there
    assert [m.type for m in agent.history] == ["human", *kept, "ai"]
    agent.say("hello")
    assert [m.text for m in agent.history[-3:]] == ["done", "hello", "done"]
    assert validate_messages(agent.history) == []


# --- over all shapes, ways and agents -----------------------------------------------------------

STREAMED_TEXTS = [(shape, way) for shape, way in EVERY if shape != "objects" and way != "invoke"]
UNFINISHED = {
    "at the limit": (CUT, "limit"),
    "in a dead stream": (CUT, None),
    "malformed": (MALFORMED, None),
}
HOW = "shape", "way", "name", "asynchronous"


@pytest.mark.parametrize(
    ("cause", *HOW),
    [
        *pairs([("at the limit", *each) for each in EVERY], AGENTS, ASYNC),
        *pairs([("in a dead stream", s, "stream") for s in ("text", "blocks")], AGENTS, ASYNC),
        *in_turn([("malformed", *each) for each in STREAMED_TEXTS], AGENTS, ASYNC),
        *in_turn([("malformed", "text", "invoke", name) for name in AGENTS], ASYNC),
    ],
)
def test_f37_an_unfinished_call_is_asked_for_again(cause, shape, way, name, asynchronous):
    """It does not run, whether the provider gives its raw text or an object."""
    call, reason = UNFINISHED[cause]
    script = said(shape, way, name, call, reason=reason)
    agent = agent_that_says(name, way, script, asynchronous=asynchronous)
    turn(agent, way)
    assert_asked_again(agent, name)


@pytest.mark.parametrize(HOW, in_turn(EVERY * 2, AGENTS, ASYNC))
def test_a_complete_call_before_the_cut_one_runs_once(shape, way, name, asynchronous):
    """The model is not asked again before the result of the complete call."""
    script = said(shape, way, name, COMPLETE, CUT)
    agent = agent_that_says(name, way, script, asynchronous=asynchronous)
    turn(agent, way)
    assert len(agent.model.seen) == 2
    assert agent.read["c1"] == "sent to al"
    # The second text is that of calls that LangChain found invalid itself; the third one is
    # langchain's, which is faster where only the model is patched.
    texts = ("was not run", "has incomplete arguments", "could not be executed")
    assert any(text in agent.read["c2"] for text in texts)
    agent.say("hello")
    assert agent.desk.did == {"mail al": 1}
    assert [m.text for m in agent.history[-3:]] == ["done", "hello", "done"]


@pytest.mark.parametrize(
    ("name", "asynchronous"), in_turn([n for n in AGENTS if n != "merging"], ASYNC)
)
def test_a_stream_that_fails_runs_no_call(name, asynchronous):
    """The error reaches the caller as in the bare graph, and the thread goes on."""
    script = [*said("text", "stream", name, COMPLETE, CUT), OSError("reset")]
    agent = agent_that_says(name, "stream", script, asynchronous=asynchronous)
    with pytest.raises(OSError, match="reset"):
        turn(agent, "stream")
    turn(agent, "stream", "hello")
    assert agent.desk.did == {}
    assert [m.text for m in agent.history] == ["go", "hello", "done"]


@pytest.mark.parametrize(("name", "way", "asynchronous"), in_turn(AGENTS, WAYS, ASYNC))
def test_an_empty_message_with_a_malformed_reason_is_dropped(name, way, asynchronous):
    """The model is asked again with the same history: nothing of the first answer is stored."""
    agent = agent_that_says(name, way, said("empty", way, name), asynchronous=asynchronous)
    turn(agent, way)
    assert [m.text for m in agent.history] == ["go", "done"]
    assert [len(read) for read in agent.model.seen] == [1, 1]


@pytest.mark.parametrize(
    ("shape", "name", "way"), pairs(["text", "empty"], AGENTS, ["invoke", "stream"])
)
def test_a_second_unusable_message_ends_the_turn_and_is_logged(shape, name, way, caplog):
    """The model is asked twice in the turn. The thread answers the next message."""
    caplog.set_level(logging.INFO, "langgraph_patch")
    script = [said(shape, way, name, MALFORMED, reason=None) for _ in range(2)]
    agent = agent_that_says(name, way, *script)
    turn(agent, way)
    assert len(agent.model.seen) == 2
    assert agent.history[-1].text != "done"
    ends = "its message has no complete tool call and no answer"
    logged = [(r.levelname, r.getMessage()) for r in caplog.records if ends in r.getMessage()]
    assert logged == [
        ("INFO", f"asked the model of thread '1' again: {ends}"),
        ("WARNING", f"the turn of thread '1' may end here: {ends}"),
    ]
    turn(agent, way, "hello")
    assert agent.history[-1].text == "done"
    assert agent.desk.did == {}


@pytest.mark.parametrize(
    ("reason", *HOW),
    in_turn(
        [*((None, *each) for each in EVERY), *(("limit", *each) for each in STREAMED_TEXTS)],
        AGENTS,
        ASYNC,
    ),
)
def test_complete_calls_run_as_in_the_bare_graph(reason, shape, way, name, asynchronous):
    """With the same messages, chunks and requests; at the limit if their text is complete."""
    bare = {"middleware": "create_agent", "patched_model": "hand_built"}.get(name, name)
    found = []
    for kinds, kind in ((AGENTS, name), (BARE, bare)):
        script = said(shape, way, name, COMPLETE, ("mail", '{"to": "eve"}'), reason=reason)
        agent = agent_that_says(kind, way, script, asynchronous=asynchronous, kinds=kinds)
        chunks = turn(agent, way)
        texts = [(m.type, m.text) for m in agent.history]
        found.append((agent.desk.did, texts, len(chunks), len(agent.model.seen)))
    assert found[0] == found[1]
    assert found[0][0] == {"mail al": 1, "mail eve": 1}


@pytest.mark.parametrize(
    ("shape", "way", "name"),
    in_turn([("text", "stream"), *((s, w) for s in ("blocks", "objects") for w in WAYS[:2])], BARE),
)
def test_a_bare_graph_runs_the_cut_call(shape, way, name):
    """The judge of these tests: nothing in the message shows that arguments are missing."""
    agent = agent_that_says(name, way, said(shape, way, name, CUT), kinds=BARE)
    turn(agent, way)
    assert agent.desk.did == {"mail bo": 1}


@pytest.mark.parametrize("name", AGENTS)
def test_content_of_langchains_own_form(name):
    """With `output_version="v1"` the calls are content blocks of that form."""
    agent = Agent(AGENTS[name], said("blocks", "stream", name, CUT))
    agent.model.streaming, agent.model.output_version = True, "v1"
    turn(agent, "stream")
    assert_asked_again(agent, name)


def test_all_protections_at_once_ask_once():
    """The node, the middleware and the model are patched; the middleware asks again."""

    def build(model, tools, saver):
        middleware = [PatchToolCallsMiddleware()]
        model = patch_model(model)
        return with_patching(create_agent(model, tools, middleware=middleware, checkpointer=saver))

    agent = Agent(build, BAD, BAD)
    agent.say("go")
    assert len(agent.model.seen) == 2
    agent.say("hello")
    assert agent.history[-1].text == "done"


@pytest.mark.parametrize("name", ["hand_built", "middleware"])
def test_a_damaged_history_and_a_cut_call_in_one_turn(name):
    """Both repairs are written."""
    agent = Agent(name, said("blocks", "stream", name, CUT))
    agent.model.streaming = True
    history = [HumanMessage("hi"), calls(("mail", {"to": "x"}), first=9)]
    agent.graph.update_state(agent.config, {"messages": history}, as_node="tools")
    agent.say("go")
    types = ["human", "ai", "tool", "human", "ai", "tool", "ai"]
    assert [m.type for m in agent.history] == types
    assert validate_messages(agent.history) == []
    assert agent.desk.did == {}


def test_the_updates_of_a_turn_that_asks_again():
    """The node's update has both answers and the placeholder between them."""
    agent = Agent("hand_built", said("text", "stream", "hand_built", CUT))
    agent.model.streaming = True
    (update,) = agent.stream({"messages": [HumanMessage("go")]})
    assert [m.type for m in update["agent"]["messages"]] == ["ai", "tool", "ai"]


# --- what stands between a node and its model ----------------------------------------------------


class Node(NamedTuple):
    """A node that leads to a model.

    Attributes:
        build: Makes the graph, of a model, tools and a checkpointer.
        asks: Whether the model is asked again after a cut call; otherwise the turn ends.
        key: The state key of its history.
    """

    build: Any
    asks: bool = True
    key: str = "messages"


def around(call: Any, tools: Any, saver: Any) -> Any:
    """A patched loop around a function that takes the history and returns a message."""
    builder = loop(None, tools)
    builder.nodes["agent"].runnable = RunnableLambda(
        lambda state: {"messages": [call(state["messages"])]}
    )
    return with_patching(builder.compile(checkpointer=saver))


def explicit_callbacks(model, tools, saver):
    """Explicit callbacks replace those that LangGraph passes on."""
    config: Any = {"callbacks": [BaseCallbackHandler()]}
    return around(lambda history: model.invoke(history, config), tools, saver)


def retries(model, tools, saver):
    """A model that is asked again after an error, and has another one behind it."""
    whole = model.with_retry(stop_after_attempt=2).with_fallbacks([StrictModel()])
    return around(whole.invoke, tools, saver)


def agent_in_a_node(model, tools, saver):
    """A function calls an agent that is not patched, and returns its last message."""
    agent = create_agent(model, tools)
    return around(lambda history: agent.invoke({"messages": history})["messages"][-1], tools, saver)


def agent_in_a_tool(model, tools, saver, **options):
    """A tool calls an agent that is not patched."""
    agent = create_agent(model, tools)

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        return agent.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    boss = StrictModel(script=[calls(("delegate", {"task": "go"}), first=7)])
    return with_patching(loop(boss, [delegate]).compile(checkpointer=saver), **options)


def agent_in_a_recorded_tool(model, tools, saver):
    """The same tool with `record=True`."""
    return agent_in_a_tool(model, tools, saver, record=True)


class Talk(TypedDict):
    """A history under another key, beside the one that is patched."""

    talk: Annotated[list[AnyMessage], add_messages]
    messages: Annotated[list[AnyMessage], add_messages]


class OnlyTalk(TypedDict):
    """The other history alone."""

    talk: Annotated[list[AnyMessage], add_messages]


def of_talk(model: Any, tools: Any, state: Any) -> Any:
    """A loop whose history is under another key."""
    ends = {"tools": "tools", END: END}
    builder = loop(model, tools, state=state, key="talk", router=lambda _: END)
    builder.branches.clear()
    route = lambda state: "tools" if state["talk"][-1].tool_calls else END
    return builder.add_conditional_edges("agent", route, ends)


def another_key(model, tools, saver):
    """A node whose history is under a key that is not patched."""
    builder = of_talk(model, tools, Talk)
    builder.add_node("other", lambda state: {"messages": [AIMessage(str(len(state["messages"])))]})
    return with_patching(builder.add_edge(START, "other").compile(checkpointer=saver))


def nested_with_another_key(model, tools, saver):
    """A graph that is a node, with a history under a key that is not patched."""
    builder = above(of_talk(model, tools, OnlyTalk).compile(), state=Talk)
    builder.add_node("other", lambda state: {"messages": [AIMessage(str(len(state["messages"])))]})
    return with_patching(builder.add_edge(START, "other").compile(checkpointer=saver))


def nested(model, tools, saver):
    """A patched graph that is a node of a patched graph."""
    graph = above(with_patching(loop(model, tools).compile()))
    return with_patching(graph.compile(checkpointer=saver))


def asking(model, tools, saver):
    """A node asks a human before its model; the human has answered."""

    def call(history):
        if len(history) == 1:
            interrupt("may I?")
        return model.invoke(history)

    return around(call, tools, saver)


def sending(model, tools, saver):
    """A node sends each call to the tools itself."""

    def call(state):
        whole = merged(model.stream(state["messages"]))
        sends = [Send("tools", [made]) for made in whole.tool_calls]
        return Command(update={"messages": [whole]}, goto=sends)

    builder = loop(None, tools)
    builder.branches.clear()
    builder.nodes["agent"].runnable = RunnableLambda(call)
    return with_patching(builder.compile(checkpointer=saver))


NODES = {
    "explicit callbacks": Node(explicit_callbacks),
    "retries and fallbacks": Node(retries),
    "an agent in a node": Node(agent_in_a_node, asks=False),
    "an agent in a tool": Node(agent_in_a_tool, asks=False),
    "an agent in a recorded tool": Node(agent_in_a_recorded_tool, asks=False),
    "a history under another key": Node(another_key, asks=False, key="talk"),
    "a nested patched graph": Node(nested),
    "a nested graph with another key": Node(nested_with_another_key, asks=False, key="talk"),
    "a node that interrupts": Node(asking, asks=False),
    "sends its calls": Node(sending),
}
SAID = {
    "cut": ([CUT], {}),
    "complete": ([COMPLETE], {"mail al": 1}),
    "both": ([COMPLETE, CUT], {"mail al": 1}),
}


@pytest.mark.parametrize(("name", "said", "asynchronous"), pairs(NODES, SAID, ASYNC))
def test_the_guard_reaches_the_model_of(name, said, asynchronous, caplog):
    """A cut call never runs, a complete one runs once, and the thread goes on."""
    node, (named, did) = NODES[name], SAID[said]
    agent = Agent(node.build, streamed(*named, reason="length"), asynchronous=asynchronous)
    agent.model.streaming = True
    for value in ({node.key: [HumanMessage("go")]}, Command(resume="yes")):
        if not isinstance(value, Command) or agent.interrupts:
            agent.stream(value, "messages")
    assert agent.desk.did == did
    asked = 1 if said == "cut" and not node.asks else 2
    assert len(agent.model.seen) == asked
    dropped = said != "complete" and not node.asks and name != "a node that interrupts"
    assert ("dropped a tool call that the model did not finish" in caplog.text) is dropped
    agent.stream({node.key: [HumanMessage("hello")]}, "messages")
    assert agent.desk.did == did
    history = agent.graph.get_state(agent.config).values[node.key]
    assert history[-1].text == "done"
    assert validate_messages(history) == []


# --- what a node returns -------------------------------------------------------------------------

CUT_STREAM = streamed(CUT)


def of_one_node(call: Any, schema: Any = MessagesState) -> Any:
    """A patched graph with one node."""
    builder = StateGraph(schema).add_node("model", call).add_edge(START, "model")
    return with_patching(builder.compile(checkpointer=InMemorySaver()))


def play(graph: Any, value: Any = None) -> list[Any]:
    """The history after one turn."""
    config: Any = {"configurable": {"thread_id": "1"}}
    return graph.invoke(value or {"messages": [HumanMessage("go")]}, config)["messages"]


OUTPUTS: dict[str, Any] = {
    "a dict": ("dict", lambda m: {"messages": [m]}),
    "one message": ("dict", lambda m: {"messages": m}),
    "a command": ("dict", lambda m: Command(update={"messages": [m]})),
    "commands": ("dict", lambda m: [Command(update={"messages": [m]})]),
    "a command of pairs": ("dict", lambda m: Command(update=[("messages", [m])])),
    "a pydantic state": ("pydantic", lambda m: STATES["pydantic"](messages=[m])),
    "a dataclass state": ("dataclass", lambda m: STATES["dataclass"](messages=[m])),
}
UNUSUAL = [*OUTPUTS][4:]


@pytest.mark.parametrize("form", OUTPUTS)
def test_every_form_of_output_is_corrected_and_the_usual_ones_ask_again(form):
    """After any other form of output the turn ends, and the call does not run."""
    state, output = OUTPUTS[form]
    model = StrictModel(script=[CUT_STREAM])
    graph = of_one_node(lambda s: output(merged(model.stream(history_of(s)))), STATES[state])
    messages = play(graph)
    assert not messages[1].tool_calls or form not in UNUSUAL
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"][
        : 2 if form in UNUSUAL else 4
    ]
    if form not in UNUSUAL:
        assert [m.type for m in model.seen[1]] == ["human", "ai", "tool"]
        assert validate_messages(messages) == []


def test_a_node_that_keeps_what_came_before_an_error():
    """The error is the sign that the call is cut, also without arguments."""
    model = StrictModel(script=[[*streamed(("mail", "")), OSError("reset")]])
    messages = play(of_one_node(lambda s: {"messages": merged(model.stream(s["messages"]))}))
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]


def test_a_node_that_stops_reading():
    """What the stream would have brought does not matter; it is not closed when the node ends."""
    model, kept = StrictModel(script=[[*CUT_STREAM, *streamed(COMPLETE)]]), []

    def call(state):
        kept.append(model.stream(state["messages"]))
        if len(kept) > 1:
            return {"messages": merged(kept[1])}
        return {"messages": next(kept[0]) + next(kept[0])}

    assert [m.type for m in play(of_one_node(call))] == ["human", "ai", "tool", "ai"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["in turn", "in parallel"])
async def test_two_models_in_one_node(asynchronous):
    """Only the message that is cut is corrected; the node is not run again."""
    cut, whole = StrictModel(script=[CUT_STREAM]), StrictModel(script=[streamed(COMPLETE)])

    async def answer(model, history):
        chunks = []
        async for chunk in model.astream(history):
            chunks.append(chunk)
            await asyncio.sleep(0)
        return merged(chunks)

    async def acall(state):
        both = (answer(model, state["messages"]) for model in (cut, whole))
        return {"messages": await asyncio.gather(*both)}

    def call(state):
        return {"messages": [merged(model.stream(state["messages"])) for model in (cut, whole)]}

    graph = of_one_node(RunnableLambda(call, acall))
    value: Any = {"messages": [HumanMessage("go")]}
    config: Any = {"configurable": {"thread_id": "1"}}
    result = await graph.ainvoke(value, config) if asynchronous else graph.invoke(value, config)
    _, first, second = result["messages"]
    assert (first.tool_calls, first.invalid_tool_calls[0]["args"]) == ([], CUT[1])
    assert second.tool_calls[0]["args"] == {"to": "al"}
    assert len(cut.seen) == 1


# --- the message ---------------------------------------------------------------------------------

CALL = {"name": "mail", "args": {"to": "bob"}, "id": "c1"}
INVALID = {"name": "mail", "args": '{"to": b', "id": "c9", "error": "no JSON"}
USE = {"type": "tool_use", "name": "mail", "input": {"to": "bob"}, "id": "c1"}
BAD = AIMessage("", invalid_tool_calls=[INVALID])
TEXT = {"type": "text", "text": "I write."}


def at_limit(content: Any = "", /, **fields: Any) -> AIMessage:
    """A message whose one call ended at the token limit of Anthropic, or for the given reason."""
    metadata = {"stop_reason": "max_tokens", **fields.pop("metadata", {})}
    return AIMessage(content, **{"tool_calls": [CALL], "response_metadata": metadata, **fields})


def because(key: str, reason: str | None, provider: str | None = None, **fields: Any) -> AIMessage:
    """The same for another reason."""
    metadata = {key: reason} | ({"model_provider": provider} if provider else {})
    return at_limit("", response_metadata=metadata, **fields)


def malformed(key: str, reason: str, content: Any = "") -> AIMessage:
    """A message without a call, that ended because the model wrote none that could be read."""
    return AIMessage(content, response_metadata={key: reason})


REFUSED = {
    "a text before it": at_limit("I write to Bob."),
    "its block is the last one": at_limit([TEXT, USE]),
    "an empty text behind it": at_limit([USE, {**TEXT, "text": ""}]),
    "the context window was full": because("stop_reason", "model_context_window_exceeded"),
    "Bedrock": because("stopReason", "max_tokens"),
    "Gemini": because("finish_reason", "MAX_TOKENS"),
    "two reasons that LangChain joined": because("finish_reason", "STOPMAX_TOKENS"),
    "Vertex": because("finish_reason", "MAX_TOKENS", "google_vertexai"),
    "no arguments": at_limit(tool_calls=[{**CALL, "args": {}}]),
    "nested arguments": at_limit(tool_calls=[{**CALL, "args": {"a": [1, {"b": "}"}], "c": {}}}]),
    "a raw text that was cut off": at_limit([{**USE, "input": {}, "partial_json": '{"to": "bob"'}]),
    "a copy of Gemini's": at_limit(
        additional_kwargs={"function_call": {"name": "mail", "arguments": '{"to": "bob"}'}}
    ),
}
"""Messages whose last call may lack arguments."""
ASKED_AGAIN = {
    "an invalid call": BAD,
    "a text that announces it": AIMessage("I write to Bob.", invalid_tool_calls=[INVALID]),
    "malformed, of Bedrock": malformed("stopReason", "malformed_tool_use", []),
    "malformed output, of Bedrock": malformed("stopReason", "malformed_model_output"),
    "malformed, of Gemini, with thoughts": malformed(
        "finish_reason", "MALFORMED_FUNCTION_CALL", [{"type": "thinking", "thinking": "hm"}]
    ),
}
"""Messages without a call that can run, and without an answer."""
KEPT = {
    "a length of a provider with strict texts": because("finish_reason", "length"),
    "another reason": because("stop_reason", "tool_use"),
    "no reason": because("stop_reason", None),
    "another provider": because("finish_reason", "MAX_TOKENS", "cohere"),
    "a text behind it": at_limit([USE, TEXT]),
    "a thought behind it": at_limit([USE, {"type": "thinking", "thinking": "hm"}]),
    "an invalid call, which is the cut one": at_limit([USE], invalid_tool_calls=[INVALID]),
    "a raw text that is complete": at_limit(
        [{**USE, "input": {}, "partial_json": '{"to": "bob"}'}]
    ),
    "a call beside an invalid one": AIMessage("", tool_calls=[CALL], invalid_tool_calls=[INVALID]),
    "a text": AIMessage("hello"),
    "nothing, and no reason": AIMessage(""),
    "a text, and a malformed reason": malformed("finish_reason", "MALFORMED_FUNCTION_CALL", "hi"),
    "a text behind an invalid call": AIMessage(
        [{**USE, "id": "c9"}, TEXT], invalid_tool_calls=[INVALID]
    ),
}
"""Messages that are left as they are."""


@pytest.mark.parametrize("name", [*REFUSED, *ASKED_AGAIN, *KEPT])
def test_which_messages_are_asked_for_again(name):
    """Once; a complete call and an answer never are."""
    message = {**REFUSED, **ASKED_AGAIN, **KEPT}[name]
    model = StrictModel(script=[message.model_copy(deep=True)])
    answer = patch_model(model).invoke("go")
    assert len(model.seen) == (1 if name in KEPT else 2)
    if name in KEPT:
        assert (answer.content, answer.tool_calls) == (message.content, message.tool_calls)
    else:
        assert answer.text == "done"


@pytest.mark.parametrize("name", REFUSED)
def test_the_last_call_at_the_limit_is_refused_and_stays_so(name):
    """It is kept with an incomplete text: no later repair takes it for a complete call."""
    message = REFUSED[name].model_copy(deep=True)
    answer = patch_model(StrictModel(script=[BAD, message])).invoke("go")
    assert (answer.tool_calls, answer.additional_kwargs) == ([], {})
    (call,) = read_calls(answer)
    assert (call.id, call.name, call.source) == ("c1", "mail", "stopped")
    assert call.raw_args is not None
    repaired = patch_messages([HumanMessage("go"), answer, HumanMessage("hello")]).messages
    assert [m.type for m in repaired] == ["human", "ai", "tool", "human"]
    assert "was not run" in repaired[2].text
    assert validate_messages(repaired) == []


def test_the_last_of_two_equal_calls_is_refused():
    """The first one of the same id and arguments is complete."""
    twins = at_limit(tool_calls=[CALL, CALL])
    answer = patch_model(StrictModel(script=[twins])).invoke("go")
    assert (len(answer.tool_calls), len(answer.invalid_tool_calls)) == (1, 1)


def test_a_complete_call_that_a_cache_returns_is_kept():
    """The message was streamed when it was stored; its block has the raw text."""
    script = blocks([COMPLETE], "limit", whole=False)
    model = StrictModel(script=[script], streaming=True, cache=InMemoryCache())
    answers = [patch_model(model).invoke("go") for _ in range(2)]
    assert len(model.seen) == 1
    assert [answer.tool_calls[0]["args"] for answer in answers] == [{"to": "al"}] * 2


# --- when the model is not asked again -----------------------------------------------------------


@tool
def look_up() -> str:
    """Look it up."""
    LOOKED["up"] += 1
    return "found"


LOOKED: Counter[str] = Counter()


def test_a_node_that_runs_a_tool_is_not_run_again(caplog):
    """The tool runs once, the turn ends, and the log says so."""
    LOOKED.clear()
    model = StrictModel(script=[BAD])

    def call(state):
        look_up.invoke({})
        return {"messages": [model.invoke(state["messages"])]}

    assert [m.type for m in play(of_one_node(call))] == ["human", "ai"]
    assert LOOKED == {"up": 1}
    assert "may end here" in caplog.text


def test_a_middleware_that_runs_a_tool_is_not_called_again():
    """The tool of a middleware between the package's and the model runs once."""
    LOOKED.clear()

    @wrap_model_call
    def looking(request, handler):
        look_up.invoke({})
        return handler(request)

    model, middleware = StrictModel(script=[BAD]), [PatchToolCallsMiddleware(), looking]
    play(create_agent(model, [], middleware=middleware))
    assert LOOKED == {"up": 1}
    assert len(model.seen) == 1


def test_a_node_that_asked_a_human_is_not_run_again():
    """The human is asked once, also about a message that was not streamed."""
    model = StrictModel(script=[BAD])

    def call(state):
        interrupt("may I?")
        return {"messages": [model.invoke(state["messages"])]}

    graph = of_one_node(call)
    play(graph)
    assert [m.type for m in play(graph, Command(resume="yes"))] == ["human", "ai"]
    assert len(model.seen) == 1


def test_a_patched_model_in_a_tool_asks_again():
    """The loop in the tool repairs its own history, so its model may be asked again."""
    model = StrictModel(script=[BAD])
    patched = patch_model(model)

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        return patched.invoke(task).text

    boss = StrictModel(script=[calls(("delegate", {"task": "go"}))])
    messages = play(with_patching(create_agent(boss, [delegate], checkpointer=InMemorySaver())))
    assert [m.text for m in messages] == ["go", "", "done", "done"]
    assert [[m.type for m in seen] for seen in model.seen] == [["human"], ["human", "ai", "tool"]]


def test_the_second_run_of_a_model_has_a_run_id_of_its_own():
    """Tracers keep runs by their ids."""
    started = []

    class Handler(BaseCallbackHandler):
        def on_chat_model_start(self, *_, run_id, **__):
            started.append(run_id)

    run_id = "00000000-0000-0000-0000-000000000001"
    patch_model(StrictModel(script=[BAD])).invoke(
        "go", {"run_id": run_id, "callbacks": [Handler()]}
    )
    assert len(set(started)) == len(started) == 2


@pytest.mark.parametrize("message", [BAD, at_limit(tool_calls=[{**CALL, "name": "Answer"}])])
@pytest.mark.parametrize("protects", ["the node", "the middleware"])
def test_a_structured_answer_is_asked_for_again(message, protects):
    """`create_agent` reads the arguments of a call as the answer."""

    class Answer(BaseModel):
        """The answer."""

        to: str

    model = StrictModel(
        script=[message.model_copy(deep=True), calls(("Answer", {"to": "al"}), first=2)]
    )
    middleware = [PatchToolCallsMiddleware()] if protects == "the middleware" else []
    agent = create_agent(model, [], middleware=middleware, response_format=ToolStrategy(Answer))
    graph = with_patching(agent) if protects == "the node" else agent
    result = graph.invoke({"messages": [HumanMessage("go")]})
    assert result["structured_response"] == Answer(to="al")
    assert len(model.seen) == 2
    assert validate_messages(result["messages"]) == []


@pytest.mark.parametrize(("bad", "routed"), [(1, []), (2, [2])])
def test_a_router_that_reads_invalid_calls_is_asked_after_the_second_answer(bad, routed):
    """The package asks first; a second malformed call reaches the application's own node."""
    model, seen = StrictModel(script=[BAD] * bad), []

    def own(state):
        seen.append(len(model.seen))
        return {"messages": [AIMessage("sorry")]}

    def route(state):
        return "own" if state["messages"][-1].invalid_tool_calls else END

    builder = loop(model, [], router=route)
    builder.branches.clear()
    builder.add_node("own", own).add_conditional_edges("agent", route, ["own", END])
    play(with_patching(builder.compile()))
    assert seen == routed
