"""Graphs in which a node asks a model of its own, somewhere around a model and its tools."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, Send, interrupt

from gates.world import World, ask, last_calls, newest_calls, returned
from langgraph_patch.testing.model import RefusedError

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


def _builder(world: World, *, start: str = "agent", behind: str = "agent") -> StateGraph[Any]:
    """The model and its tools: where the graph begins, and what comes behind the tools."""
    builder = StateGraph(State)
    builder.add_node("agent", _agent(world.main()))
    builder.add_node("tools", ToolNode(world.tools()))
    if world.approval == "node":  # a Command that leads to the tools keeps `record` from them
        builder.add_node("approval", _approval, destinations=("agent", "tools"))
    return builder.add_edge(START, start).add_edge("tools", behind)


def _if_called(builder: StateGraph[Any], *names: str) -> None:
    """A model that calls tools leads to these nodes, and any other message ends the turn."""
    ways = lambda s: names if last_calls(s["messages"]) else ["__end__"]
    builder.add_conditional_edges("agent", ways, [*names, "__end__"])


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
        return returned(world, state, ask(world, judge, state["messages"]), key)

    return gate


def _gate(world: World) -> StateGraph[Any]:
    builder = _builder(world).add_node("gate", _gate_of(world))
    _if_called(builder, "gate")
    return builder.add_conditional_edges("gate", partial(_to_tools, world), _ends(world))


def _sends(world: World) -> StateGraph[Any]:
    """The same, with a task for each call: of the newest message that has any."""

    def each(state: State) -> Any:
        newest = next(m for m in reversed(state["messages"]) if last_calls([m]))
        return [Send("tools", [call]) for call in newest.tool_calls]

    builder = _builder(world).add_node("gate", _gate_of(world))
    _if_called(builder, "gate")
    return builder.add_conditional_edges("gate", each, ["tools"])


def _summary(world: World) -> StateGraph[Any]:
    """It is asked in every turn, also behind an answer."""
    builder = _builder(world).add_node("gate", _gate_of(world, "plan")).add_edge("agent", "gate")
    return builder.add_conditional_edges("gate", partial(_to_tools, world), _ends(world))


def _beside(world: World) -> StateGraph[Any]:
    builder = _builder(world).add_node("gate", _gate_of(world))
    _if_called(builder, "gate", "tools")
    return builder


def _two_beside(world: World) -> StateGraph[Any]:
    """Two judges beside each other; the tools come behind both."""
    builder = _builder(world)
    builder.add_node("gate", _gate_of(world, "verdict")).add_node("other", _gate_of(world, "plan"))
    builder.add_node("join", lambda _: {}).add_edge(["gate", "other"], "join")
    _if_called(builder, "gate", "other")
    return builder.add_conditional_edges("join", partial(_to_tools, world), _ends(world))


def _hub(world: World) -> StateGraph[Any]:
    judge = world.judge()

    def hub(state: State) -> Any:
        verdict = ask(world, judge, state["messages"])
        last = state["messages"][-1]
        goto = _to_tools(world, {**state, "verdict": verdict})
        if last.type in {"human", "tool"}:
            goto = "agent"
        made = returned(world, state, verdict)
        update = made.update if isinstance(made, Command) else made or {}
        return Command(update=update, goto=goto)

    builder = _builder(world, start="hub", behind="hub").add_edge("agent", "hub")
    return builder.add_node("hub", hub, destinations=("agent", *_ends(world)))


def _executor(world: World) -> StateGraph[Any]:
    """It runs the calls itself, behind a question to its model."""
    judge, tools = world.judge(), {each.name: each for each in world.tools()}

    def executor(state: State) -> Any:
        verdict = ask(world, judge, state["messages"])
        made = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage)).tool_calls
        if verdict == "unsafe":
            return {"messages": [ToolMessage("declined", tool_call_id=c["id"]) for c in made]}
        return {"messages": [tools[call["name"]].invoke(call) for call in made]}

    builder = StateGraph(State).add_node("agent", _agent(world.main())).add_edge(START, "agent")
    builder.add_node("gate", executor).add_edge("gate", "agent")
    _if_called(builder, "gate")
    return builder


def _planner(world: World) -> StateGraph[Any]:
    """Two nodes, each with a model of its own, between the model and its tools."""
    builder = _builder(world).add_node("planner", _gate_of(world, "plan"))
    builder.add_node("writer", _gate_of(world)).add_edge("planner", "writer")
    _if_called(builder, "planner")
    return builder.add_conditional_edges("writer", partial(_to_tools, world), _ends(world))


def _two_models(world: World) -> StateGraph[Any]:
    """One node asks two models, of which the second refuses."""
    first, judge = world.model("main", lambda _: "plan"), world.judge()

    def gate(state: State) -> Any:
        with suppress(RefusedError):
            first.invoke([HumanMessage("Make a plan.")])
        return returned(world, state, ask(world, judge, state["messages"]))

    builder = _builder(world).add_node("gate", gate)
    _if_called(builder, "gate")
    return builder.add_conditional_edges("gate", partial(_to_tools, world), _ends(world))


class Prebuilt(AgentState[Any]):
    """The state of an agent of LangChain with what hooks say."""

    verdict: str


def _hook(world: World, place: str, *, order: int = 0) -> Any:
    judge = world.judge()

    class Judge(AgentMiddleware):
        """Asks a judge at one place."""

        state_schema = Prebuilt

    def hook(self: Any, state: Any, runtime: Any) -> Any:  # LangGraph passes them by name
        if place == "after_model" and not newest_calls(state["messages"]):
            return None
        return returned(world, state, ask(world, judge, state["messages"]), "verdict")

    def wrap_model(_: Any, request: Any, handler: Any) -> Any:
        ask(world, judge, request.messages)
        return handler(request)

    def wrap_tool(_: Any, request: Any, handler: Any) -> Any:
        ask(world, judge, request.state["messages"])
        return handler(request)

    wrappers = {"wrap_model_call": wrap_model, "wrap_tool_call": wrap_tool}
    setattr(Judge, place, wrappers.get(place, hook))
    human = [HumanInTheLoopMiddleware({"pay": True})] * (world.approval == "node")
    middleware = [Judge(), *human] if order else [*human, Judge()]
    return create_agent(world.main(), world.tools(), middleware=middleware)


def _asking_tool(world: World) -> StateGraph[Any]:
    """A tool that asks a model about the history that it is given."""
    judge = world.judge()

    @tool
    def look(amount: int, messages: Annotated[list[AnyMessage], InjectedState("messages")]) -> str:
        """Look."""
        ask(world, judge, messages)
        world.done.append((f"c{amount + 1}", "looked"))
        return f"looked {amount}"

    pay, _ = world.tools()
    builder = StateGraph(State).add_node("agent", _agent(world.main())).add_edge(START, "agent")
    builder.add_node("tools", ToolNode([pay, look])).add_edge("tools", "agent")
    _if_called(builder, "tools")
    return builder


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
_WRAPPERS = "hook around the model", "hook around the tools"
CLASHES = {
    ("beside", "append ai"),
    *(("two beside", each) for each in ("remove", "state", "append", "append ai")),
    *((place, "ainvoke") for place in _WRAPPERS),
    *(
        (place, f"reads calls{behind}")
        for place in ("hook before", "hook behind the human", "hub", *_WRAPPERS)
        for behind in ("", " behind")
    ),
}
"""What cannot be: two nodes return it, the last message may be any, a hook is not asynchronous."""
