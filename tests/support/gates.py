"""Nodes that ask a model of their own about calls that are alive, and what comes of the calls.

`PLACES` are graphs in which such a node stands somewhere around a model and its tools, `REFUSALS`
what the provider of its model refuses, `RETURNS` what it adds to the history, `MANNERS` how it
asks. `play` plays three turns: a payment that a human agrees to, thanks, and a payment that he
declines. The oracle is a ledger outside of the graph, and two bare graphs: the one that is
patched, and one whose providers refuse nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, Send, interrupt

from langgraph_patch import with_patching
from langgraph_patch.testing import StrictModel, calls
from langgraph_patch.testing.model import RefusedError

# --- what providers refuse ------------------------------------------------------------------


def open_ids(messages: Sequence[BaseMessage]) -> list[str]:
    """The ids of calls that have no result right behind their message."""
    waiting, left = list[str](), list[str]()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id in waiting:
                waiting.remove(message.tool_call_id)
            else:
                left.append(f"{message.tool_call_id} without a call")
            continue
        left, waiting = [*left, *waiting], []
        if isinstance(message, AIMessage):
            waiting = [str(c["id"]) for c in (*message.tool_calls, *message.invalid_tool_calls)]
    return [*left, *waiting]


def _blocks(messages: Sequence[BaseMessage], kind: str) -> bool:
    blocks = (block for message in messages for block in message.content)
    return any(isinstance(block, dict) and block.get("type") == kind for block in blocks)


def _says_nothing(message: BaseMessage) -> bool:
    is_called = isinstance(message, AIMessage) and bool(message.tool_calls)
    return message.type == "ai" and not is_called and not message.text.strip()


PICTURE = [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
THINKING = [
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "text", "text": "It rains."},
]
CLAUDE = {"model_provider": "anthropic", "model_name": "claude-sonnet-4-6"}


class Refusal(NamedTuple):
    """What a provider refuses: an old turn, what of it, and the text of the refusal."""

    old: tuple[BaseMessage, BaseMessage]
    has: Callable[[Sequence[BaseMessage]], bool]
    text: str


_OLD = HumanMessage("Rain?", id="h0"), AIMessage("It rains.", id="a0")
_EMPTY = HumanMessage("Rain?", id="h0"), AIMessage("", id="a0")
_EMPTY_TEXT = "messages.1: Assistant message must have either content or tool_calls"
_OPEN_TEXT = "`tool_use` ids were found without `tool_result` blocks immediately after: {}"


def _has_nothing(messages: Sequence[BaseMessage]) -> bool:
    return any(map(_says_nothing, messages))


REFUSALS = {
    "picture": Refusal(
        (HumanMessage(PICTURE, id="h0"), _OLD[1]),
        partial(_blocks, kind="image"),
        "messages.0.content.0: Could not process image",
    ),
    "empty": Refusal(_EMPTY, _has_nothing, _EMPTY_TEXT),
    "thinking": Refusal(
        (_OLD[0], AIMessage(THINKING, id="a0", response_metadata=CLAUDE)),
        partial(_blocks, kind="thinking"),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "open call": Refusal(_OLD, lambda messages: bool(open_ids(messages)), _OPEN_TEXT),
    "unknown text": Refusal(_EMPTY, _has_nothing, "Bad request."),
    # more than the five of the table
    "no text": Refusal(_EMPTY, _has_nothing, ""),
    "hopeless": Refusal(_OLD, lambda _: True, "Bad request."),
    "hopeless picture": Refusal(
        (HumanMessage(PICTURE, id="h0"), _OLD[1]), lambda _: True, "Could not process image"
    ),
    "no pictures": Refusal(
        (HumanMessage(PICTURE, id="h0"), _OLD[1]),
        partial(_blocks, kind="image"),
        "image_url is only supported by certain models",
    ),
    "nothing": Refusal(_EMPTY, lambda _: False, ""),
}
TABLE = ("picture", "empty", "thinking", "open call", "unknown text")

# --- the world --------------------------------------------------------------------------------


class OwnError(Exception):
    """What a gate raises in place of a refusal."""


@dataclass
class World:
    """One thread: what its tools did, what its models read, what its humans were asked.

    Attributes:
        refusal: What the judge refuses.
        strict: Whether every model refuses open calls, too.
        approval: Who asks a human: "", "tool", "node", "gate" if the last message has calls, or
            "gate, newest" if the newest message of a model has.
        manner: How the gate asks, a key of `MANNERS`.
        returns: What the gate adds, a key of `RETURNS`.
        done: For each call what became of it, in order: "start", "paid", "declined".
        read: What each model read, with the number of entries of `done` before.
    """

    refusal: Refusal
    strict: bool = False
    approval: str = ""
    manner: str = "plain"
    returns: str = "verdict"
    done: list[tuple[str, str]] = field(default_factory=list)
    read: list[tuple[str, int, list[BaseMessage]]] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    requests: int = 0

    def model(self, name: str, script: Callable[[list[BaseMessage]], Any]) -> StrictModel:
        """A model that says what the script makes of each history that it accepts."""

        def refuses(messages: list[BaseMessage]) -> None:
            if self.strict and (ids := open_ids(messages)):
                raise RefusedError(_OPEN_TEXT.format(ids), 400)
            if name == "main":
                return
            self.requests += 1
            if self.manner == "in turn" and self.requests % 2 == 0:
                return
            if self.refusal.has(messages):
                raise RefusedError(self.refusal.text.format(open_ids(messages)), 400)

        def say(messages: list[BaseMessage]) -> Any:
            self.read.append((name, len(self.done), list(messages)))
            return script(messages)

        return StrictModel(*[say] * 60, refuses=refuses)

    def main(self) -> StrictModel:
        """The model that calls the tools: it pays and looks when it is told to, once."""

        def reply(messages: list[BaseMessage]) -> Any:
            told = [n for n, m in enumerate(messages) if str(m.text).startswith("pay ")]
            since = messages[told[-1] if told else 0 :]
            if not told or any(isinstance(m, AIMessage) for m in since):
                return "Done."
            amount = int(since[0].text.split()[1])
            return calls(("pay", {"amount": amount}), ("look", {"amount": amount}), first=amount)

        return self.model("main", reply)

    def judge(self) -> StrictModel:
        """A model that finds everything safe."""
        return self.model("judge", lambda _: "safe")

    def tools(self) -> list[BaseTool]:
        """`pay`, which may ask a human, and `look`."""

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            call_id = f"c{amount}"
            if self.approval == "tool":
                self.done.append((call_id, "asked"))
                if interrupt(f"pay {amount}?") != "yes":
                    self.done.append((call_id, "declined"))
                    return "declined"
            self.done.append((call_id, "paid"))
            return f"paid {amount}"

        @tool
        def look(amount: int) -> str:
            """Look."""
            self.done.append((f"c{amount + 1}", "looked"))
            return f"looked {amount}"

        return [pay, look]


def last_calls(messages: Sequence[BaseMessage]) -> list[Any]:
    """The calls of the last message."""
    return list(getattr(messages[-1], "tool_calls", None) or [])


def newest_calls(messages: Sequence[BaseMessage]) -> list[Any]:
    """The calls of the newest message of a model."""
    return next((m.tool_calls for m in reversed(messages) if isinstance(m, AIMessage)), [])


# --- how a gate asks ---------------------------------------------------------------------------

QUESTION = HumanMessage("Is the call safe?", id="question")


def _plain(judge: Any, messages: list[BaseMessage]) -> str:
    return judge.invoke([*messages, QUESTION]).text


def _reads_calls(judge: Any, messages: list[BaseMessage]) -> str:
    made = messages[-1].tool_calls  # the code of an application: it knows what is before it
    return judge.invoke([*messages, HumanMessage(f"Is {made} safe?")]).text


def _reads_calls_behind(judge: Any, messages: list[BaseMessage]) -> str:
    verdict = _plain(judge, messages)
    return verdict if messages[-1].tool_calls else "unsafe"


def _if_last_calls(judge: Any, messages: list[BaseMessage]) -> str:
    return _plain(judge, messages) if last_calls(messages) else "safe"


def _at_the_end(judge: Any, messages: list[BaseMessage]) -> str:
    return judge.invoke(messages).text


def _raises_its_own(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError as error:
        raise OwnError("the judge is not there") from error


def _raises_another(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError:
        pass
    raise OwnError("the judge is not there")


def _safe_by_default(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError:
        return "safe"


def _unsafe_by_default(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError:
        return "unsafe"


def _twice(judge: Any, messages: list[BaseMessage]) -> str:
    _plain(judge, messages)
    return _at_the_end(judge, messages)


def _batch(judge: Any, messages: list[BaseMessage]) -> str:
    one, other = judge.batch([[*messages, QUESTION], [*messages, QUESTION, QUESTION]])
    return one.text and other.text


MANNERS: dict[str, Callable[[Any, list[BaseMessage]], str]] = {
    "plain": _plain,
    "in turn": _plain,
    "reads calls": _reads_calls,
    "reads calls behind": _reads_calls_behind,
    "if last calls": _if_last_calls,
    "at the end": _at_the_end,
    "raises its own": _raises_its_own,
    "raises another": _raises_another,
    "safe by default": _safe_by_default,
    "unsafe by default": _unsafe_by_default,
    "twice": _twice,
    "batch": _batch,
}

# --- what it adds ------------------------------------------------------------------------------


def _by_id_again(messages: list[BaseMessage]) -> list[BaseMessage]:
    newest = next(m for m in reversed(messages) if isinstance(m, AIMessage))
    return [newest.model_copy()]


def _smaller(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The message of the model with less text, under its id."""
    newest = next(m for m in reversed(messages) if isinstance(m, AIMessage))
    return [newest.model_copy(update={"additional_kwargs": {"checked": True}})]


def _removed(messages: list[BaseMessage]) -> list[RemoveMessage]:
    """Removals of the old turn."""
    return [RemoveMessage(id=m.id) for m in messages if m.id in {"h0", "a0"}]


RETURNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "verdict": lambda _: {},
    "none": lambda _: None,
    "all": lambda s: {"messages": s["messages"]},
    "copies": lambda s: {"messages": [m.model_copy() for m in s["messages"]]},
    "last": lambda s: {"messages": s["messages"][-1:]},
    "last ai": lambda s: {"messages": _by_id_again(s["messages"])},
    "changed ai": lambda s: {"messages": _smaller(s["messages"])},
    "human": lambda _: {"messages": [HumanMessage("checked")]},
    "remove": lambda s: {"messages": _removed(s["messages"])},
    "ai": lambda _: {"messages": [AIMessage("checked")]},
    "command": lambda _: Command(update={}),
    "command all": lambda s: Command(update={"messages": s["messages"]}),
    "list": lambda s: [{"messages": s["messages"][-1:]}, Command(update={})],
    "state": lambda s: {k: v for k, v in s.items() if k in {"messages", "verdict"}},
}
"""What is returned beside the verdict. `append` and `append ai` change the list in place."""


def _returned(world: World, state: dict[str, Any], verdict: str, key: str = "verdict") -> Any:
    if world.returns.startswith("append"):
        is_ai = world.returns == "append ai"
        state["messages"].append(AIMessage("checked") if is_ai else HumanMessage("checked"))
        return {**state, key: verdict} if key else {"messages": state["messages"]}
    made = RETURNS[world.returns](state)
    if not key:
        return made
    match made:
        case dict():
            return {**made, key: verdict}
        case Command():
            return Command(update={**made.update, key: verdict})
        case list():
            return [{**made[0], key: verdict}, *made[1:]]
    return made


def _ask(world: World, judge: Any, messages: list[BaseMessage]) -> str:
    verdict = MANNERS[world.manner](judge, messages)
    calls_of = last_calls if world.approval == "gate" else newest_calls
    if world.approval.startswith("gate") and calls_of(messages):
        world.asked.append("gate")
        verdict = "safe" if interrupt("May it?") == "yes" else "unsafe"
    return verdict


# --- the graphs --------------------------------------------------------------------------------


class State(MessagesState):
    """The history, and what gates say."""

    verdict: str
    plan: str


def _agent(model: Any) -> Callable[[State], Any]:
    return lambda state: {"messages": [model.invoke(state["messages"])]}


def _approval(state: State) -> Any:
    """A human agrees to all calls of the last message of a model, or to none."""
    made = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage)).tool_calls
    if interrupt("May it?") == "yes":
        return Command(goto="tools")
    texts = [ToolMessage("declined", tool_call_id=call["id"]) for call in made]
    return Command(update={"messages": texts}, goto="agent")


def _builder(world: World) -> StateGraph[Any]:
    builder = StateGraph(State)
    builder.add_node("agent", _agent(world.main()))
    builder.add_node("tools", ToolNode(world.tools()))
    if world.approval == "node":  # a Command that leads to the tools keeps `record` from them
        builder.add_node("approval", _approval, destinations=("agent", "tools"))
    builder.add_edge("tools", "agent")
    return builder


def _to_tools(world: World, state: State) -> str:
    is_safe = state.get("verdict", "safe") == "safe" or world.returns == "none"
    newest = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage))
    if not (is_safe and newest.tool_calls):
        return "__end__"
    return "approval" if world.approval == "node" else "tools"


def _ends(world: World) -> list[str]:
    return ["tools", *["approval"] * (world.approval == "node"), "__end__"]


def _gate_of(world: World, key: str = "verdict") -> Callable[[State], Any]:
    judge = world.judge()

    def gate(state: State) -> Any:
        return _returned(world, state, _ask(world, judge, state["messages"]), key)

    return gate


def _gate(world: World) -> StateGraph[Any]:
    builder = _builder(world).add_node("gate", _gate_of(world)).add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent", lambda s: "gate" if last_calls(s["messages"]) else "__end__", ["gate", "__end__"]
    )
    return builder.add_conditional_edges("gate", partial(_to_tools, world), _ends(world))


def _sends(world: World) -> StateGraph[Any]:
    """The same, with a task for each call: of the newest message that has any."""

    def each(state: State) -> Any:
        newest = next(m for m in reversed(state["messages"]) if last_calls([m]))
        return [Send("tools", [call]) for call in newest.tool_calls]

    builder = _builder(world).add_node("gate", _gate_of(world)).add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent", lambda s: "gate" if last_calls(s["messages"]) else "__end__", ["gate", "__end__"]
    )
    return builder.add_conditional_edges("gate", each, ["tools"])


def _summary(world: World) -> StateGraph[Any]:
    """It is asked in every turn, also behind an answer."""
    builder = _builder(world).add_node("gate", _gate_of(world, "plan")).add_edge(START, "agent")
    builder.add_edge("agent", "gate")
    return builder.add_conditional_edges("gate", partial(_to_tools, world), _ends(world))


def _beside(world: World) -> StateGraph[Any]:
    builder = _builder(world).add_node("gate", _gate_of(world)).add_edge(START, "agent")
    ways = lambda s: ["gate", "tools"] if last_calls(s["messages"]) else ["__end__"]
    return builder.add_conditional_edges("agent", ways, ["gate", "tools", "__end__"])


def _two_beside(world: World) -> StateGraph[Any]:
    """Two judges beside each other; the tools come behind both."""
    builder = _builder(world).add_edge(START, "agent")
    builder.add_node("gate", _gate_of(world, "verdict")).add_node("other", _gate_of(world, "plan"))
    builder.add_node("join", lambda _: {}).add_edge(["gate", "other"], "join")
    ways = lambda s: ["gate", "other"] if last_calls(s["messages"]) else ["__end__"]
    builder.add_conditional_edges("agent", ways, ["gate", "other", "__end__"])
    return builder.add_conditional_edges("join", partial(_to_tools, world), _ends(world))


def _hub(world: World) -> StateGraph[Any]:
    judge = world.judge()

    def hub(state: State) -> Any:
        verdict = _ask(world, judge, state["messages"])
        last = state["messages"][-1]
        goto = _to_tools(world, {**state, "verdict": verdict})
        if last.type in {"human", "tool"}:
            goto = "agent"
        made = _returned(world, state, verdict)
        update = made.update if isinstance(made, Command) else made or {}
        return Command(update=update, goto=goto)

    builder = StateGraph(State)
    builder.add_node("agent", _agent(world.main()))
    builder.add_node("tools", ToolNode(world.tools()))
    if world.approval == "node":
        builder.add_node("approval", _approval, destinations=("agent", "tools"))
    builder.add_node("hub", hub, destinations=("agent", *_ends(world))).add_edge(START, "hub")
    return builder.add_edge("agent", "hub").add_edge("tools", "hub")


def _executor(world: World) -> StateGraph[Any]:
    """It runs the calls itself, behind a question to its model."""
    judge, tools = world.judge(), {each.name: each for each in world.tools()}

    def executor(state: State) -> Any:
        verdict = _ask(world, judge, state["messages"])
        made = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage)).tool_calls
        if verdict == "unsafe":
            return {"messages": [ToolMessage("declined", tool_call_id=c["id"]) for c in made]}
        return {"messages": [tools[call["name"]].invoke(call) for call in made]}

    builder = StateGraph(State).add_node("agent", _agent(world.main())).add_edge(START, "agent")
    builder.add_node("gate", executor).add_edge("gate", "agent")
    ways = lambda s: "gate" if last_calls(s["messages"]) else "__end__"
    return builder.add_conditional_edges("agent", ways, ["gate", "__end__"])


def _planner(world: World) -> StateGraph[Any]:
    """Two nodes, each with a model of its own, between the model and its tools."""
    builder = _builder(world).add_edge(START, "agent")
    builder.add_node("planner", _gate_of(world, "plan")).add_node("writer", _gate_of(world))
    ways = lambda s: "planner" if last_calls(s["messages"]) else "__end__"
    builder.add_conditional_edges("agent", ways, ["planner", "__end__"])
    builder.add_edge("planner", "writer")
    return builder.add_conditional_edges("writer", partial(_to_tools, world), _ends(world))


def _two_models(world: World) -> StateGraph[Any]:
    """One node asks two models, of which the second refuses."""
    first, judge = world.model("main", lambda _: "plan"), world.judge()

    def gate(state: State) -> Any:
        with suppress(RefusedError):
            first.invoke([HumanMessage("Make a plan.")])
        return _returned(world, state, _ask(world, judge, state["messages"]))

    builder = _builder(world).add_node("gate", gate).add_edge(START, "agent")
    ways = lambda s: "gate" if last_calls(s["messages"]) else "__end__"
    builder.add_conditional_edges("agent", ways, ["gate", "__end__"])
    return builder.add_conditional_edges("gate", partial(_to_tools, world), _ends(world))


class Prebuilt(AgentState[Any]):
    """The state of an agent of LangChain with what hooks say."""

    verdict: str


def _hook(world: World, place: str, *, order: int = 0) -> Any:
    judge = world.judge()

    class Judge(AgentMiddleware):
        """Asks a judge at one place."""

        state_schema = Prebuilt

    def ask(self: Any, state: Any, runtime: Any) -> Any:  # LangGraph passes them by name
        if place == "after_model" and not newest_calls(state["messages"]):
            return None
        return _returned(world, state, _ask(world, judge, state["messages"]), "verdict")

    def wrap_model(_: Any, request: Any, handler: Any) -> Any:
        _ask(world, judge, request.messages)
        return handler(request)

    def wrap_tool(_: Any, request: Any, handler: Any) -> Any:
        _ask(world, judge, request.state["messages"])
        return handler(request)

    wrappers = {"wrap_model_call": wrap_model, "wrap_tool_call": wrap_tool}
    setattr(Judge, place, wrappers.get(place, ask))
    human = [HumanInTheLoopMiddleware({"pay": True})] * (world.approval == "node")
    middleware = [Judge(), *human] if order else [*human, Judge()]
    return create_agent(world.main(), world.tools(), middleware=middleware)


def _asking_tool(world: World) -> StateGraph[Any]:
    """A tool that asks a model about the history that it is given."""
    judge = world.judge()

    @tool
    def look(amount: int, messages: Annotated[list[AnyMessage], InjectedState("messages")]) -> str:
        """Look."""
        _ask(world, judge, messages)
        world.done.append((f"c{amount + 1}", "looked"))
        return f"looked {amount}"

    pay, _ = world.tools()
    builder = StateGraph(State).add_node("agent", _agent(world.main())).add_edge(START, "agent")
    builder.add_node("tools", ToolNode([pay, look])).add_edge("tools", "agent")
    ways = lambda s: "tools" if last_calls(s["messages"]) else "__end__"
    return builder.add_conditional_edges("agent", ways, ["tools", "__end__"])


def _inside(world: World, build: Callable[[World], Any]) -> StateGraph[Any]:
    """The graph as a node of another one."""
    inner = build(world)
    inner = inner.compile() if isinstance(inner, StateGraph) else inner
    return StateGraph(State).add_node("inner", inner).add_edge(START, "inner")


PLACES: dict[str, Callable[[World], Any]] = {
    "gate": _gate,
    "hook before": partial(_hook, place="before_model"),
    "hook behind": partial(_hook, place="after_model"),
    "summary": _summary,
    "beside": _beside,
    "hub": _hub,
    "executor": _executor,
    "planner": _planner,
    # more than the eight of the table
    "hook behind the human": partial(_hook, place="after_model", order=1),
    "hook around the model": partial(_hook, place="wrap_model_call"),
    "hook around the tools": partial(_hook, place="wrap_tool_call"),
    "two beside": _two_beside,
    "two models": _two_models,
    "sends": _sends,
    "tool": _asking_tool,
    "gate inside": partial(_inside, build=_gate),
    "hook inside": partial(_inside, build=partial(_hook, place="after_model")),
}
EIGHT = tuple(PLACES)[:8]
CLASHES = {("two beside", each) for each in ("remove", "state", "append", "append ai")}
"""What two nodes of one superstep cannot both return."""

# --- a play ------------------------------------------------------------------------------------


class Turn(NamedTuple):
    """What happened in a turn.

    Attributes:
        end: The text of the last message, "waits", or the name of the error.
        asked: How often a human was asked.
        did: What tools did.
        read: The results that the model of the agent read last.
        judged: How often a judge has answered.
    """

    end: str
    asked: int
    did: tuple[tuple[str, str], ...]
    read: tuple[str, ...]
    judged: int


class Outcome(NamedTuple):
    """What happened in three turns, and the history that is stored then."""

    turns: tuple[Turn, ...]
    stored: tuple[str, ...]
    world: World


class Form(NamedTuple):
    """A row of the table and a column of it."""

    place: str
    refusal: str
    strict: bool = False
    approval: str = ""
    returns: str = "verdict"
    manner: str = "plain"
    way: str = "invoke"


_CONFIG: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 30}


def _run(graph: Any, value: Any, way: str) -> Any:
    match way:
        case "ainvoke":
            return asyncio.run(graph.ainvoke(value, _CONFIG))
        case "stream":
            for _ in graph.stream(value, _CONFIG, stream_mode=["messages", "values"]):
                pass
        case _:
            return graph.invoke(value, _CONFIG)


def _answer(pause: Any, text: str) -> Any:
    if not isinstance(pause.value, dict):
        return text
    kind = {"type": "approve" if text == "yes" else "reject"}
    return {"decisions": [kind for _ in pause.value["action_requests"]]}


def _turn(graph: Any, world: World, value: Any, answer: str, way: str) -> Turn:
    begin, asked, end = len(world.done), 0, ""
    judged = -sum(name == "judge" for name, *_ in world.read)
    for _ in range(6):
        try:
            _run(graph, value, way)
        except Exception as error:  # noqa: BLE001 - an error is an outcome
            end = f"{type(error).__name__}: {error}"[:90]
            break
        if not (pauses := graph.get_state(_CONFIG).interrupts):
            break
        asked += len(pauses)
        value = Command(resume={pause.id: _answer(pause, answer) for pause in pauses})
    messages = graph.get_state(_CONFIG).values.get("messages") or [HumanMessage("nothing")]
    read = [m for name, _, m in world.read if name == "main"]
    return Turn(
        end or str(messages[-1].text),
        asked,
        tuple(sorted(world.done[begin:])),
        tuple(str(m.text) for m in (read[-1] if read else []) if isinstance(m, ToolMessage)),
        judged + sum(name == "judge" for name, *_ in world.read),
    )


def play(form: Form, wrap: Callable[[Any], Any] = lambda graph: graph, **changes: Any) -> Outcome:
    """Three turns in one thread, in a graph that is wrapped or not."""
    refusal = REFUSALS[form.refusal]
    refusal = refusal._replace(**changes) if changes else refusal
    strict = form.strict and not changes
    world = World(refusal, strict, form.approval, form.manner, form.returns)
    graph = PLACES[form.place](world)
    builder = graph if isinstance(graph, StateGraph) else graph.builder
    graph = wrap(builder.compile(checkpointer=InMemorySaver()))
    first = {"messages": [*refusal.old, HumanMessage("pay 10", id="h1")]}
    turns = [_turn(graph, world, first, "yes", form.way)]
    for text, answer in (("thanks", "yes"), ("pay 20", "no")):
        value = {"messages": [HumanMessage(text, id=text)]}
        turns.append(_turn(graph, world, value, answer, form.way))
    stored = graph.get_state(_CONFIG).values.get("messages", [])
    texts = tuple(str(m.text) for m in stored if isinstance(m, ToolMessage))
    return Outcome(tuple(turns), texts, world)


@cache
def bare(form: Form) -> Outcome:
    """The graph without the package."""
    return play(form)


@cache
def _accepted(form: Form) -> Outcome:
    return play(form, has=lambda _: False)


def accepted(form: Form) -> Outcome:
    """The graph without the package, whose providers refuse nothing."""
    return _accepted(form._replace(strict=False))


def patched(form: Form, options: Mapping[str, Any]) -> Outcome:
    """The graph with the package."""
    return play(form, lambda graph: with_patching(graph, **options))


# --- the laws ----------------------------------------------------------------------------------

_NOT_RUN = re.compile(r"no start and no result|was not run|rejected the tool call")
_WAITS = re.compile(r"(is|was) waiting for human input")
_OPEN = re.compile(r"may or may not")
_DID = {"paid": "paid", "looked": "looked", "declined": "declined"}


def falsehoods(outcome: Outcome) -> Iterator[str]:
    """What a model read of a call that the ledger contradicts."""
    world = outcome.world
    for name, before, messages in world.read:
        for message in messages:
            if not isinstance(message, ToolMessage):
                continue
            text, call_id = str(message.text), message.tool_call_id
            did = [what for each, what in world.done[:before] if each == call_id]
            works = [what for what in did if what in {"paid", "looked"}]
            word = text.split()[0] if text else ""
            if word in {"paid", "looked"}:
                is_true = word in works
            elif word == "declined":
                is_true = not works
            elif _NOT_RUN.search(text) or _WAITS.search(text):
                is_true = not works
            else:
                is_true = bool(_OPEN.search(text))
            if not is_true:
                yield f"{name} reads {text!r} of {call_id}, which did {did}"


def did_of(outcome: Outcome, *, is_replayed: bool) -> list[tuple[tuple[str, str], ...]]:
    """What tools did in each turn, without how often they asked before.

    Where all calls of a message are one task, LangGraph runs what stood beside a pause again.
    """
    done = [[d for d in turn.did if d[1] != "asked"] for turn in outcome.turns]
    return [tuple(dict.fromkeys(each) if is_replayed else each) for each in done]


def _is_error(turn: Turn) -> bool:
    return turn.end.partition(":")[0].endswith("Error")


def broken(form: Form, options: Mapping[str, Any]) -> tuple[list[str], tuple[Outcome, ...]]:
    """The laws that a patched graph breaks, with what happened bare, accepted and patched."""
    was_bare, was_accepted, was_patched = bare(form), accepted(form), patched(form, options)
    found = [f"false: {each}" for each in falsehoods(was_patched)]
    did_in = partial(did_of, is_replayed=form.approval == "tool" and not options.get("record"))
    all_done = [d for turn in did_in(was_patched) for d in turn]
    if len(all_done) != len({*all_done}):
        found.append(f"twice: {all_done}")
    rows = zip(
        ("1", "2", "3"),
        was_bare.turns, was_accepted.turns, was_patched.turns,
        did_in(was_bare), did_in(was_accepted), did_in(was_patched),
        strict=True,
    )  # fmt: skip
    for number, one, right, other, did_bare, did_right, did in rows:
        assert not _is_error(right) or form.returns.startswith("append"), (form, right)
        failed = _is_error(other)
        if missing := {*did_bare} - {*all_done}:
            found.append(f"not run in turn {number}, bare runs it: {sorted(missing)}")
        if more := {*did} - {*did_right} - {d for turn in did_in(was_accepted) for d in turn}:
            found.append(f"run in turn {number}, bare does not run it: {sorted(more)}")
        if failed:
            if other.end.partition(":")[0] not in {"RefusedError", one.end.partition(":")[0]}:
                found.append(f"turn {number} ends with {other.end!r}, bare with {one.end!r}")
            if not _is_error(one):
                found.append(f"turn {number} ends with {other.end!r}, bare with {one.end!r}")
            break  # what comes behind is another story
        if one != right and form.manner.endswith("by default"):
            right, did_right = one, did_bare  # the gate handles the refusal
        if did != did_right:
            found.append(f"turn {number} did {did}, right is {did_right}")
        if other.asked != right.asked:
            found.append(f"turn {number} asked {other.asked}, right is {right.asked}")
        if other.read != right.read and form.returns not in {"ai", "append ai"}:
            found.append(f"turn {number} read {other.read}, right is {right.read}")
        if other.judged < right.judged:
            found.append(f"turn {number} judged {other.judged} times, right is {right.judged}")
        if other.end != right.end:
            found.append(f"turn {number} ends {other.end!r}, right is {right.end!r}")
    else:
        if was_patched.stored != was_accepted.stored and not form.manner.endswith("by default"):
            found.append(f"stored {was_patched.stored}, right is {was_accepted.stored}")
    return found, (was_bare, was_accepted, was_patched)
