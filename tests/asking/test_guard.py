"""A call that the model did not finish writing never runs; a complete one always does.

A message without a call that can run, and without an answer, does not end the turn silently.
`tests/server/test_providers.py` shows the same with the integrations of providers.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections import Counter, OrderedDict, defaultdict
from functools import partial
from itertools import product
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    message_chunk_to_message,
)
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, add_messages
from langgraph.prebuilt import tools_condition
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

import kit
from kit import STATES, Agent, StrictModel, above, calls, history_of, loop, streamed
from langgraph_patch import is_placeholder, patch_model, validate_messages, with_patching
from langgraph_patch.errors import UnfinishedError

COMPLETE = ("mail", '{"to": "al"}')
CUT = ("mail", '{"to": "bo')
"""LangChain completes it to `mail(to="bo")`, and a bare graph sends the mail."""
CUT_STREAM, CUT_AT_LIMIT = streamed(CUT), streamed(CUT, reason="length")
MALFORMED = ("mail", '{"to": "bo",,}')
"""No JSON, though the model finished it."""

V3 = (
    pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"),
    pytest.mark.needs("v3", langgraph="1.2"),
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
    parts = [
        {**call, "args": json.dumps(call["args"]), "index": index}
        for index, call in enumerate(made.tool_calls)
    ]
    chunks = [AIMessageChunk("", tool_call_chunks=[part]) for part in parts]
    return [*chunks, AIMessageChunk("", response_metadata=metadata)]


def as_object(raw: str) -> Any:
    """What a provider makes of arguments: what is there of them."""
    return json.loads(raw if raw.endswith("}") else raw + '"}')


def empty(_: Any, __: Any, *, whole: bool) -> Any:
    """What Gemini returns instead of a call that it could not read."""
    metadata = {"finish_reason": "MALFORMED_FUNCTION_CALL"}
    message = (AIMessage if whole else AIMessageChunk)("", response_metadata=metadata)
    return message if whole else [message]


SHAPES = {"text": text, "objects": objects, "empty": empty}
WAYS = ("invoke", "stream", "v3")
"""How a graph runs: its model is not streamed, is streamed, or is read as v3 events."""
EVERY = [*product(["text", "objects"], WAYS)]


# --- agents -------------------------------------------------------------------------------------


def merged(chunks: Any) -> Any:
    """What a node makes of a stream; an error ends it."""
    whole = None
    try:
        for chunk in chunks:
            whole = chunk if whole is None else whole + chunk
    except OSError:
        pass
    return whole


def around(call: Any, tools: Any, saver: Any, acall: Any = None) -> Any:
    """A loop around a function that takes the state and returns the output of its node."""
    builder = loop(None, tools)
    builder.nodes["agent"].runnable = RunnableLambda(call, acall, name="agent")
    return builder.compile(checkpointer=saver)


def merging(model: Any, tools: Any, saver: Any) -> Any:
    """A loop whose node merges the chunks of its model itself."""

    def call(state):
        return {"messages": merged(model.stream(state["messages"]))}

    async def acall(state):
        return {"messages": merged([chunk async for chunk in model.astream(state["messages"])])}

    return around(call, tools, saver, acall)


BARE = {**kit.BARE, "merging": merging}
AGENTS: dict[str, Any] = {
    "hand_built": "hand_built",
    "merging": lambda *parts: with_patching(merging(*parts)),
    "create_agent": "create_agent",
    "middleware": "middleware",
    "patched_model": lambda model, *rest: BARE["hand_built"](patch_model(model), *rest),
}


def in_turn(first: Any, *others: Any) -> list[Any]:
    """Each row of the first axis once, with the values of the others in turn."""
    axes = [list(each) for each in others]
    rows = [(*row, *(each[i % len(each)] for each in axes)) for i, row in enumerate(first)]
    return [pytest.param(*row, id="-".join(map(str, row)), marks=V3) for row in rows]


ASYNC = (False, True, False, True, True, False, True)
"""Of a length of its own, so that it meets each value of the other axes."""


def agent_of(
    shape: str,
    way: str,
    name: str,
    *named: Any,
    reason: Any = "limit",
    asynchronous: bool = False,
) -> Agent:
    """An agent whose model makes these calls, streamed or not, and then says `done`."""
    whole = way == "invoke" and name != "merging"
    script = SHAPES[shape](named, reason, whole=whole)
    agent = Agent(AGENTS[name], script, asynchronous=asynchronous)
    agent.model.streaming = not whole
    return agent


def turn(agent: Agent, way: str, value: Any = "go") -> list[Any]:
    """One turn; what its stream gave."""
    if isinstance(value, str):
        value = {"messages": [HumanMessage(value)]}
    if way == "v3":
        return list(agent.graph.stream_events(value, agent.config, version="v3"))
    if way != "events":
        return agent.stream(value, "values" if way == "invoke" else "messages")

    async def events() -> list[Any]:
        stream = agent.graph.astream_events(value, agent.config, version="v2")
        return [event async for event in stream]

    return asyncio.run(events())


# --- over all shapes, ways and agents -----------------------------------------------------------

STREAMED_TEXTS = [("text", "stream"), ("text", "v3")]
UNFINISHED = {
    "at the limit": (CUT, "limit"),
    "in a dead stream": (CUT, None),
    "malformed": (MALFORMED, None),
}
HOW = "shape", "way", "name", "asynchronous"
GUARDS = ("hand_built", "middleware", "patched_model")
"""Who guards the model: its node, the middleware, itself."""
CAUSES = [
    *(("at the limit", *each) for each in EVERY * 2),
    *(("malformed", *each) for each in [*STREAMED_TEXTS, ("text", "invoke")]),
    ("in a dead stream", "text", "stream"),
]


@pytest.mark.parametrize(("cause", *HOW), in_turn(CAUSES, AGENTS, ASYNC))
def test_an_unfinished_call_is_asked_for_again(cause, shape, way, name, asynchronous):
    """It does not run; the model reads that, and answers; the thread goes on."""
    call, reason = UNFINISHED[cause]
    agent = agent_of(shape, way, name, call, reason=reason, asynchronous=asynchronous)
    turn(agent, way)
    assert agent.desk.did == {}
    assert len(agent.model.seen) == 2
    assert is_placeholder(agent.model.seen[1][-1])
    assert "not a complete JSON object" in agent.model.seen[1][-1].text
    kept = [] if name == "patched_model" else ["ai", "tool"]  # nothing repairs the state there
    assert [m.type for m in agent.history] == ["human", *kept, "ai"]
    agent.say("hello")
    assert [m.text for m in agent.history[-3:]] == ["done", "hello", "done"]
    assert validate_messages(agent.history) == []


@pytest.mark.parametrize(
    ("name", "way", "asynchronous"), in_turn([[name] for name in GUARDS], WAYS, ASYNC)
)
def test_an_empty_message_with_a_malformed_reason_is_dropped(name, way, asynchronous):
    """The model is asked again with the same history: nothing of the first answer is stored."""
    agent = agent_of("empty", way, name, asynchronous=asynchronous)
    turn(agent, way)
    assert [m.text for m in agent.history] == ["go", "done"]
    assert [len(read) for read in agent.model.seen] == [1, 1]


# --- what stands between a node and its model ----------------------------------------------------


def answering(make: Any) -> Any:
    """A patched loop around a function of a model and tools that answers a history."""

    def build(model, tools, saver):
        call = make(model, tools)
        node = lambda state: {"messages": [call(state["messages"])]}
        return with_patching(around(node, tools, saver))

    return build


def asking(model, tools):
    """Ask a human first."""

    def call(history):
        if len(history) == 1:
            interrupt("may I?")
        return model.invoke(history)

    return call


def calling_an_agent(model, tools):
    """Call an agent that is not patched, and return its last message."""
    agent = create_agent(model, tools)
    return lambda history: agent.invoke({"messages": history})["messages"][-1]


def agent_in_a_tool(model, tools, saver):
    """A tool calls an agent that is not patched."""
    call = calling_an_agent(model, tools)

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        return call([HumanMessage(task)]).text

    boss = StrictModel(script=[calls(("delegate", {"task": "go"}), first=7)])
    return with_patching(loop(boss, [delegate]).compile(checkpointer=saver))


class Talk(TypedDict):
    """A history that is not patched."""

    talk: Annotated[list[AnyMessage], add_messages]


class Both(MessagesState, Talk):
    """A patched history beside it."""


def another_key(model, tools, saver, *, state=Both, nests=False):
    """A loop, or a nested one, over a history that is not patched, beside a patched node."""
    route = lambda values: tools_condition(values, messages_key="talk")
    builder = loop(model, tools, state=state, key="talk", router=route)
    if nests:
        builder = above(builder.compile(), state=Both)
    builder.add_node("other", lambda values: {"messages": values["messages"][:0]})
    return with_patching(builder.add_edge(START, "other").compile(checkpointer=saver))


def nested(model, tools, saver):
    """A patched graph that is a node of a patched graph."""
    graph = above(with_patching(loop(model, tools).compile()))
    return with_patching(graph.compile(checkpointer=saver))


def sending(model, tools, saver):
    """A node sends each call to the tools itself."""

    def call(state):
        whole = merged(model.stream(state["messages"]))
        sends = [Send("tools", [made]) for made in whole.tool_calls]
        return Command(update={"messages": [whole]}, goto=sends)

    bare = around(call, tools, saver).builder
    bare.branches.clear()
    return with_patching(bare.compile(checkpointer=saver))


HANDLERS: Any = {"callbacks": [BaseCallbackHandler()]}
"""They replace those that LangGraph passes on."""
NODES = {
    "explicit callbacks": answering(lambda model, _: lambda read: model.invoke(read, HANDLERS)),
    "retries": answering(lambda model, _: model.with_retry(stop_after_attempt=2).invoke),
    "a nested patched graph": nested,
    "sends its calls": sending,
    "asks a human": answering(asking),
    "an agent in a node": answering(calling_an_agent),
    "an agent in a tool": agent_in_a_tool,
    "another key": another_key,
    "another key of a nested graph": partial(another_key, state=Talk, nests=True),
}
"""What stands between a node and its model."""
ENDS, DROPS = [*NODES][4:5], [*NODES][5:]
"""Where the turn ends, and where the call is dropped too, as nobody repairs its history."""


@pytest.mark.parametrize(
    ("name", "is_alone", "way", "asynchronous"),
    in_turn(
        [*product(NODES, [True]), *product([*NODES][2:4] + DROPS, [False])],
        ["stream", "events", "stream"],
        [False, False, True],
    ),
)
def test_the_guard_reaches_the_model_of(name, is_alone, way, asynchronous, caplog):
    """A cut call never runs, a complete one beside it runs once, and the thread goes on."""
    key = "talk" if "another key" in name else "messages"
    named, did = ([CUT], {}) if is_alone else ([COMPLETE, CUT], {"mail al": 1})
    script = streamed(*named, reason="length")
    agent = Agent(NODES[name], script, asynchronous=asynchronous)
    agent.model.streaming = True
    turn(agent, way, {key: [HumanMessage("go")]})
    if agent.interrupts:
        turn(agent, way, Command(resume="yes"))
    assert agent.desk.did == did
    assert ("the turn of thread '1' may end here" in caplog.text) is (name in ENDS)
    dropped = "dropped a tool call that the model did not finish" in caplog.text
    assert dropped is (name in DROPS)
    assert len(agent.model.seen) == (1 if is_alone and name in ENDS + DROPS else 2)
    turn(agent, way, {key: [HumanMessage("hello")]})
    assert agent.desk.did == did
    history = agent.graph.get_state(agent.config).values[key]
    assert history[-1].text == "done"
    assert validate_messages(history) == []


# --- what a node returns -------------------------------------------------------------------------


THREAD: Any = {"configurable": {"thread_id": "1"}}
SAY_GO: Any = {"messages": [HumanMessage("go")]}


def of_one_node(call: Any, schema: Any = MessagesState) -> Any:
    """A patched graph with one node."""
    return with_patching(above(call, state=schema).compile(InMemorySaver()))


def play(graph: Any) -> list[Any]:
    """The history after one turn."""
    return graph.invoke(SAY_GO, THREAD)["messages"]


class Noted(MessagesState):
    """A state with a second key."""

    notes: Annotated[list[str], operator.add]


NOTE = Command(update={"notes": ["n"]})
OUTPUTS: dict[str, tuple[Any, Any]] = {
    "a dict": (Noted, lambda m: {"messages": [m]}),
    "one message": (Noted, lambda m: {"messages": m}),
    "a command": (Noted, lambda m: Command(update={"messages": [m]})),
    "two commands": (Noted, lambda m: [Command(update={"messages": [m]}), NOTE]),
    "one key twice": (Noted, lambda m: [Command(update={"messages": each}) for each in ([m], [])]),
    "a command of pairs": (Noted, lambda m: Command(update=[("messages", [m])])),
    "a pydantic state": (STATES["pydantic"], lambda m: STATES["pydantic"](messages=[m])),
    "a dataclass state": (STATES["dataclass"], lambda m: STATES["dataclass"](messages=[m])),
}
"""As deepagents with `skills=`, a node may return several commands."""
UNUSUAL = [*OUTPUTS][5:]


@pytest.mark.parametrize("form", OUTPUTS)
def test_every_form_of_output_is_corrected_and_the_usual_ones_ask_again(form, caplog):
    """After any other form of output the turn ends, and the call does not run; a WARNING says so.

    What the node writes beside its message is kept.
    """
    state, output = OUTPUTS[form]
    model = StrictModel(script=[CUT_STREAM])
    graph = of_one_node(lambda s: output(merged(model.stream(history_of(s)))), state)
    messages = play(graph)
    assert (graph.get_state(THREAD).values.get("notes") == ["n"]) is (form == "two commands")
    assert ("the turn of thread '1' may end here" in caplog.text) is (form in UNUSUAL)
    if form in UNUSUAL:
        assert [m.type for m in messages] == ["human", "ai"]
        assert not messages[1].tool_calls
        return
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]
    assert [m.type for m in model.seen[1]] == ["human", "ai", "tool"]
    assert validate_messages(messages) == []


class Counted(MessagesState):
    """A state with a value of any type."""

    value: Any


@pytest.mark.parametrize("make", [dict, OrderedDict, partial(defaultdict, list), Counter])
@pytest.mark.parametrize("form", [lambda chunk: chunk, message_chunk_to_message])
def test_what_holds_a_cut_call_keeps_its_type(make, form):
    """A copy of the dict, with a corrected copy of the message."""
    model, held = StrictModel(script=[streamed(COMPLETE, CUT)]), make()

    def node(state):
        held["it"] = form(merged(model.stream(state["messages"])))
        return {"messages": [held["it"]], "value": held}

    found = of_one_node(node, Counted).invoke(SAY_GO, THREAD)["value"]
    assert type(found) is type(held)
    assert (len(held["it"].tool_calls), len(found["it"].tool_calls)) == (2, 1)


def test_a_node_that_keeps_what_came_before_an_error():
    """The error is the sign that the call is cut, also without arguments."""
    model = StrictModel(script=[[*streamed(("mail", "")), OSError("reset")]])
    messages = play(of_one_node(lambda s: {"messages": merged(model.stream(s["messages"]))}))
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]


async def test_two_models_in_one_node():
    """In parallel: only the message that is cut is corrected; the node is not run again."""
    cut, whole = StrictModel(script=[CUT_STREAM]), StrictModel(script=[streamed(COMPLETE)])

    async def answer(model, history):
        chunks = []
        async for chunk in model.astream(history):
            chunks.append(chunk)
            await asyncio.sleep(0)
        return merged(chunks)

    async def call(state):
        both = (answer(model, state["messages"]) for model in (cut, whole))
        return {"messages": await asyncio.gather(*both)}

    result = await of_one_node(call).ainvoke(SAY_GO, THREAD)
    _, first, second = result["messages"]
    assert (first.tool_calls, first.invalid_tool_calls[0]["args"]) == ([], CUT[1])
    assert second.tool_calls[0]["args"] == {"to": "al"}
    assert len(cut.seen) == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_node_that_asks_until_its_model_answers(*, asynchronous: bool):
    """The tenth message in a row that the model did not finish is an error; no call runs."""

    def insisting(model: Any, tools: Any, saver: Any) -> Any:
        def assistant(state: Any) -> Any:
            answer = model.invoke(messages := state["messages"])
            while not (answer.tool_calls or answer.text):
                messages = [*messages, HumanMessage("Respond with a real output.")]
                answer = model.invoke(messages)
            return {"messages": [answer]}

        return with_patching(around(assistant, tools, saver))

    agent = Agent(insisting, *[CUT_AT_LIMIT] * 20, asynchronous=asynchronous)
    agent.model.streaming = True
    with pytest.raises(UnfinishedError, match="'agent' did not finish its message 10 times"):
        agent.say("go")
    assert (len(agent.model.seen), agent.desk.did) == (10, {})
    agent.model.script = [CUT_AT_LIMIT, AIMessage("hi")]
    agent.say("go on")
    assert agent.history[-1].text == "hi"
