"""The graphs that people run, all built alike: for the matrix, the streams and the benchmark.

Each agent has two tools: `send_email`, which finishes, and `wire_money`, which waits for a
human. The turn that breaks calls both at once.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from support.placeholder_texts import NOT_APPROVED, UNKNOWN, WAITED
from support.strict import StrictModel, ai
from support.versions import newer

DeltaChannel = newer("langgraph.channels", "DeltaChannel")
_messages_delta_reducer = newer("langgraph.graph.message", "_messages_delta_reducer")  # not public

Graph = CompiledStateGraph[Any, Any, Any, Any]


def both_calls() -> AIMessage:
    """The turn that breaks: one call that finishes, one that waits for a human."""
    return ai(("send_email", {"to": "bob"}, "c1"), ("wire_money", {"amount": 3}, "c2"), id="a1")


def thread(name: str = "1") -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": name}}


def lines(messages: Iterable[BaseMessage]) -> list[str]:
    """Each message on a line: its type, the calls that it makes or answers, its text."""
    shown = []
    for message in messages:
        who: str = message.type
        if isinstance(message, AIMessage) and message.tool_calls:
            who = " ".join([who, *(str(call["id"]) for call in message.tool_calls)])
        if isinstance(message, ToolMessage):
            who = f"{who} {message.tool_call_id}"
        shown.append(f"{who}: {message.text}")
    return shown


def history(graph: Graph, config: Any) -> list[BaseMessage]:
    """The messages that the thread holds."""
    return list(graph.get_state(config).values["messages"])


# --- tools -----------------------------------------------------------------------------


@dataclass(slots=True)
class Tools:
    """The two tools, and the calls that they finished, in order.

    Attributes:
        asynchronous: Whether they are coroutines.
        asks: Whether `wire_money` itself asks the human.
        done: What was really done.
    """

    asynchronous: bool = False
    asks: bool = True
    done: list[str] = field(default_factory=list)

    def send_email(self, to: str) -> str:
        """Send an email."""
        self.done.append(f"mail to {to}")
        return f"sent to {to}"

    def wire_money(self, amount: int) -> str:
        """Wire money."""
        answer = interrupt(f"wire {amount}?") if self.asks else "yes"
        self.done.append(f"wire {amount}")
        return f"wired: {answer}"

    async def asend_email(self, to: str) -> str:
        """Send an email."""
        return self.send_email(to)

    async def awire_money(self, amount: int) -> str:
        """Wire money."""
        return self.wire_money(amount)

    def tools(self) -> list[BaseTool]:
        """As the agents take them."""
        made: list[BaseTool] = []
        for name in ("send_email", "wire_money"):
            if self.asynchronous:
                function = getattr(self, f"a{name}")
                made.append(StructuredTool.from_function(coroutine=function, name=name))
            else:
                made.append(StructuredTool.from_function(getattr(self, name), name=name))
        return made


# --- agents ----------------------------------------------------------------------------


def hand_built(model: StrictModel, tools: Sequence[BaseTool], **options: Any) -> Graph:
    """The agent of LangGraph's own tutorial."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(**options)


def one_send_each(state: Any) -> Any:
    """A router of a hand-built agent: a task for each call of the last message."""
    return [Send("tools", [call]) for call in state["messages"][-1].tool_calls] or END


def react(model: Any, tools: Any, *, version: Literal["v1", "v2"] = "v2", **options: Any) -> Graph:
    """`create_react_agent`, which says that it has moved; people run it all the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        return create_react_agent(model, tools, version=version, **options)


def react_v1(model: Any, tools: Any, **options: Any) -> Graph:
    """One task for all calls of a message."""
    return react(model, tools, version="v1", **options)


def react_v2(model: Any, tools: Any, **options: Any) -> Graph:
    """One task for each call."""
    return react(model, tools, version="v2", **options)


def with_approval(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_agent` where a middleware asks the human before the tool runs."""
    asks = HumanInTheLoopMiddleware(interrupt_on={"wire_money": True})
    return create_agent(model, tools, middleware=[asks], **options)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of agent, and how it behaves.

    Attributes:
        name: How the tests call it.
        build: Makes one out of a model, tools and the options of `compile`.
        model_node: The node that calls the model.
        entry: What leads to the model when a turn begins.
        pauses_in: The node that waits for the human.
        asks: Whether the tool itself asks the human.
        yes: The human's approval.
        results: The two tool messages, if a message came instead of the approval.
        heals: Whether the bare agent has a repair of its own for a new message.
        runs_again: Whether LangGraph runs the finished call again on a resume.
    """

    name: str
    build: Callable[..., Graph]
    model_node: str
    entry: str = START
    pauses_in: str = "tools"
    asks: bool = True
    yes: Any = "yes"
    results: tuple[str, str] = (
        UNKNOWN.format("send_email", "c1"),
        UNKNOWN.format("wire_money", "c2"),
    )
    heals: bool = False
    runs_again: bool = False

    def make(self, *script: Any, asynchronous: bool = False, **options: Any) -> Bench:
        """The agent with its model's script; `options` go to `compile`."""
        tools = Tools(asynchronous=asynchronous, asks=self.asks)
        model = StrictModel(script=list(script))
        return Bench(self, self.build(model, tools.tools(), **options), model, tools)


@dataclass(frozen=True, slots=True)
class Bench:
    """An agent, and what can be seen of it from outside."""

    kind: Kind
    graph: Graph
    model: StrictModel
    tools: Tools


ONE_TASK_EACH = ("sent to bob", WAITED.format("wire_money", "c2"))
"""The results of the two calls where each runs in a task of its own."""

KINDS = (
    Kind("hand_built", hand_built, "agent", runs_again=True),
    Kind("react_v1", react_v1, "agent", runs_again=True),
    Kind("react_v2", react_v2, "agent", results=ONE_TASK_EACH),
    Kind("create_agent", create_agent, "model", results=ONE_TASK_EACH),
    Kind(
        "create_agent_with_approval",
        with_approval,
        "model",
        pauses_in="HumanInTheLoopMiddleware.after_model",
        asks=False,
        yes={"decisions": [{"type": "approve"}]},
        results=(NOT_APPROVED.format("send_email", "c1"), NOT_APPROVED.format("wire_money", "c2")),
    ),
    Kind(
        "create_deep_agent",
        create_deep_agent,
        "model",
        entry="PatchToolCallsMiddleware.before_agent",
        results=ONE_TASK_EACH,
        heals=True,
    ),
)


BY_NAME = {kind.name: kind for kind in KINDS}
REACT_V2 = BY_NAME["react_v2"]
CREATE_AGENT = BY_NAME["create_agent"]
DEEP_AGENT = BY_NAME["create_deep_agent"]


def human(text: str, name: str | None = None) -> HumanMessage:
    """A human message; its id is its text."""
    return HumanMessage(text, id=name or text)


# --- what a database holds ---------------------------------------------------------------

TABLES = ("checkpoints", "writes")


def stored(path: Path) -> dict[str, Any]:
    """Rows, bytes and names of channels and nodes in a database of `SqliteSaver`."""
    with closing(sqlite3.connect(path)) as db:
        tables = {name: list(db.execute(f"select * from {name}")) for name in TABLES}  # noqa: S608 - two names
        names = Counter(row[0] for row in db.execute("select channel from writes"))
    size = sum(
        len(value if isinstance(value, bytes) else str(value).encode())
        for rows in tables.values()
        for row in rows
        for value in row
    )
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for row in saver.list(None):
            checkpoint: Any = row.checkpoint
            for part in ("channel_values", "channel_versions", "versions_seen"):
                names.update(list(checkpoint[part]))
    return {"rows": {t: len(rows) for t, rows in tables.items()}, "bytes": size, "names": names}


def healthy_script(turns: int) -> list[AIMessage]:
    """Turns of two parallel calls and an answer; ids and texts are as long in every turn."""
    script = []
    for turn in range(turns):
        calls = [("send_email", {"to": f"p{n}"}, f"c{turn:03}{n}") for n in range(2)]
        script += [ai(*calls, id=f"a{turn:03}"), AIMessage("done", id=f"d{turn:03}")]
    return script


# --- a state -----------------------------------------------------------------------------


class Delta(TypedDict):
    """LangGraph's reducer for histories that are stored as differences."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


REDUCERS: dict[str, Any] = {"delta": Delta}
"""The state of a graph, by the name of its reducer."""
