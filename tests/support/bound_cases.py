"""Graphs and edits that change what was sent before a model's thinking, over four turns."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, dynamic_prompt
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from kit import Desk, loop
from support.bound import BoundModel

CONFIG: Any = {"configurable": {"thread_id": "t"}}
MAIL = [("mail", {"to": "bob"})]
TURNS = ["done", MAIL, "sent", "done", MAIL, "sent", "done"]
"""What a model says in four turns; in two of them it calls a tool."""


MAIL_TURNS = [MAIL, "sent"] * 4


def mails() -> list[Any]:
    """A tool that does not ask."""
    return Desk().tools()[:1]


def agent(model: Any, **options: Any) -> Any:
    """`create_agent` with a prompt."""
    return create_agent(model, mails(), system_prompt="Be brief.", **options)


def paused(model: Any) -> Any:
    """README's example: a call waits for a human, and a message comes instead of the answer."""
    model.script = [[*MAIL, ("wire", {"amount": 5})], "fine", *TURNS[3:]]
    return create_agent(model, Desk().tools())


def summarized(model: Any) -> Any:
    """Old messages become a summary."""
    summary = FakeListChatModel(responses=["They talked."] * 9)
    limits: Any = {"trigger": ("messages", 6), "keep": ("messages", 3)}
    return agent(model, middleware=[SummarizationMiddleware(summary, **limits)])


def with_changing_prompt(model: Any) -> Any:
    """The prompt is another one in each turn."""

    @dynamic_prompt
    def prompt(request: Any) -> str:
        return f"{sum(m.type == 'human' for m in request.messages)} messages so far."

    return create_agent(model, mails(), middleware=[prompt])


def with_window(model: Any) -> Any:
    """The node shows its model the newest messages alone."""
    bound = model.bind_tools(mails())

    def window(messages: list[Any]) -> list[Any]:
        start = max(i for i, m in enumerate(messages) if m.type == "human")
        return messages[max(0, start - 2) :]

    builder = loop(bound, mails())
    builder.nodes.pop("agent")
    builder.add_node("agent", lambda state: {"messages": [bound.invoke(window(state["messages"]))]})
    return builder.compile()


def swarm(model: Any) -> Any:
    """Two agents with prompts of their own on one history; each hands over to the other."""
    names = ("alice", "bob")
    agents = [
        create_agent(
            BoundModel(binds=model.binds, demands=model.demands, script=script, shared=model),
            [create_handoff_tool(agent_name=other)],
            system_prompt=f"You are {name}.",
            name=name,
        )
        for name, other, script in (
            (*names, ["hi", [("transfer_to_bob", {})], "back", "done"]),
            (*reversed(names), ["hello", [("transfer_to_alice", {})], "done"]),
        )
    ]
    return create_swarm(agents, default_active_agent="alice").compile


def planner_and_executor(model: Any) -> Any:
    """Two agents with prompts of their own, one after the other in each turn."""
    builder = StateGraph(MessagesState)
    for name, script in (("planner", ["a plan"] * 4), ("executor", [*MAIL_TURNS])):
        bound = BoundModel(binds=model.binds, demands=model.demands, script=script, shared=model)
        prompt = f"You are the {name}."
        builder.add_node(name, create_agent(bound, mails(), system_prompt=prompt, name=name))
    builder.add_edge(START, "planner")
    builder.add_edge("planner", "executor")
    return builder.compile


def supervisor(model: Any, patch: Any) -> Any:
    """A boss and a worker; the boss reads the worker's last message.

    A function calls the worker, so it is patched on its own.
    """
    worker_script: Any = [MAIL, "sent"] * 4
    worker = BoundModel(
        binds=model.binds, demands=model.demands, script=worker_script, shared=model
    )
    boss_script: Any = [[("transfer_to_worker", {})], "done"] * 4
    boss = BoundModel(binds=model.binds, demands=model.demands, script=boss_script, shared=model)
    agents = [patch(create_agent(worker, mails(), system_prompt="Work.", name="worker"))]
    with warnings.catch_warnings():  # it calls `create_react_agent`, which is deprecated
        warnings.simplefilter("ignore")
        return create_supervisor(agents, model=boss, prompt="Lead.").compile


SUPERVISOR = "a supervisor"

GRAPHS: dict[str, Callable[[Any], Any]] = {
    "nothing": agent,
    "placeholders": paused,
    "a summary": summarized,
    "a prompt that changes": with_changing_prompt,
    "a window": with_window,
    "a swarm": swarm,
    "planner and executor": planner_and_executor,
}
"""What an application does with its own history; the first one does nothing."""


# --- what a repair changes ----------------------------------------------------------------------


def late_result(messages: list[Any]) -> list[Any]:
    """A real result in the place of a placeholder that was answered."""
    return [
        m.model_copy(update={"content": "late"}) if isinstance(m, ToolMessage) else m
        for m in messages
    ]


def renamed_call(messages: list[Any]) -> list[Any]:
    """A call that was answered under another id."""
    renamed = []
    for message in messages:
        update: dict[str, Any] = {}
        if isinstance(message, ToolMessage):
            update = {"tool_call_id": "renamed"}
        elif isinstance(message, AIMessage) and message.tool_calls:
            blocks: Any = [
                {**b, "id": "renamed"} if b["type"] == "tool_use" else b for b in message.content
            ]
            calls = [{**call, "id": "renamed"} for call in message.tool_calls]
            update = {"content": blocks, "tool_calls": calls}
        renamed.append(message.model_copy(update=update))
    return renamed


def stored_repair(messages: list[Any]) -> list[Any]:
    """A call and its result, before messages that were answered."""
    call: Any = {"name": "mail", "args": {}, "id": "added"}
    added = [AIMessage("", tool_calls=[call]), ToolMessage("?", tool_call_id="added")]
    return [messages[0], *added, *messages[1:]]


EDITS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a late result": late_result,
    "a renamed call": renamed_call,
    "a stored repair": stored_repair,
    "a removed turn": lambda messages: messages[2:],
    "a moved message": lambda messages: [messages[1], messages[0], *messages[2:]],
}
"""What an edit of the state does between the second and the third turn."""


CASES = [*GRAPHS, SUPERVISOR, *EDITS]


def turns(
    case: str, patch: Callable[[Any], Any], *, demands: bool = False, way: Any = None
) -> list[int]:
    """How many requests each of four turns took; 0 for a turn that was refused.

    Args:
        case: The name of a graph or of an edit.
        patch: Patches the compiled graph.
        demands: Whether the model demands thinking in the turn that runs, as Claude 4 does.
            Such a model does not bind it. Default: False, it binds it.
        way: Runs the graph. Default: `invoke`.
    """
    model = BoundModel(script=[*TURNS], demands=demands, binds=not demands)
    made = supervisor(model, patch) if case == SUPERVISOR else GRAPHS.get(case, agent)(model)
    graph = made(checkpointer=InMemorySaver()) if callable(made) else made
    graph.checkpointer = graph.checkpointer or InMemorySaver()
    graph = patch(graph)
    run = way or (lambda graph, *args: graph.invoke(*args))
    found = []
    for number in itertools.count(1):
        if number == 3 and case in EDITS:
            edited = EDITS[case](graph.get_state(CONFIG).values["messages"])
            update = {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *edited]}
            graph.update_state(CONFIG, update)
        before = model.requests
        try:
            run(graph, {"messages": [HumanMessage(f"turn {number}")]}, CONFIG)
        except Exception as error:
            if "400" not in str(error):
                raise
            found.append(0)
        else:
            found.append(model.requests - before)
        if number == 4:
            return found
    raise AssertionError("unreachable")
