"""What is alive is not touched: any names and ids, wherever a human is asked before a tool.

Each story is told to a bare graph and to the patched one. As long as the bare one lives, both ask
the same, run the same tools, and store and read the same messages. What kills the bare one, the
patched one outlives, and its model reads nothing false.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolCallLimitMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from langgraph_swarm import create_swarm

from kit import BARE, StrictModel, loop, send_each, tool_of
from langgraph_patch import is_placeholder, with_patching

NAMES = ["pay", "bank.pay", "bank:pay", "bank/pay", "Bank Pay", "p" * 70, "\u4ed8\u6b3e"]
IDS = ["c{n}-{i}", "chatcmpl-tool-{n:030}-{i}", "call_{i}", "", 'call {n}|{i}/\u8c03"']
"""The ids of calls, from the number of the message and that of the call in it: unique, 46
characters, the same in each turn, empty, odd."""
ASKS = 100
"""The amount from which a human is asked."""
FAILS = 13
"""The amount at which the tool fails, after it has paid."""
ALIVE = ["pay 5, look 6", "pay 7, pay 8", "pay 150, look 9", "yes", "pay 160", "no"]
BESIDE = "saw 9"
"""What stands beside the first pause. A plain `ToolNode` runs all calls of a message in one task,
again after the answer; whether it has begun this one by then is a race."""
BROKEN = ["pay 9", "pay 170, look 16", "never mind", "pay 13, look 17", "go on", "pay 180", "yes"]
CONFIG: Any = {"configurable": {"thread_id": "1"}}


class Story:
    """A graph with one thread, whose model calls the tools that the user names: `pay 5, look 6`.

    Args:
        kind: One of the functions below.
        name: The name of the tool that pays.
        ids: One of `IDS`.
    """

    def __init__(self, kind: Any, name: str, ids: str) -> None:
        self.name, self.ids, self.ledger = name, ids, list[str]()
        self.model = StrictModel(script=[self.line] * 30)
        self.graph = kind(self)

    def line(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """What the model says."""
        n, text = len(messages), messages[-1].text
        wishes = text.split(", ") if isinstance(messages[-1], HumanMessage) else []
        found = [wish.split() for wish in wishes if wish[-1].isdigit()]
        calls = [
            ToolCall(
                name=self.name if tool == "pay" else tool,
                args={"amount": int(amount)},
                id=self.ids.format(n=n, i=i),
            )
            for i, (tool, amount) in enumerate(found)
        ]
        return AIMessage("" if calls else f"done {n}", tool_calls=calls, id=f"a{n}")

    def tools(self, *, ask: bool = False) -> list[Any]:
        """`look`, and `pay` under its name; it may ask a human itself."""

        def pay(amount: int) -> str:
            """Pay."""
            if ask and amount >= ASKS and interrupt({"amount": amount}) == "no":
                return "refused"
            self.ledger.append(f"paid {amount}")
            if amount == FAILS:
                raise RuntimeError("kaput")
            return f"paid {amount}"

        def look(amount: int) -> str:
            """Look."""
            self.ledger.append(f"saw {amount}")
            return f"saw {amount}"

        return [tool_of(pay, self.name), tool_of(look)]

    def refusals(self, state: Any) -> list[ToolMessage]:
        """Ask a human about the calls; what is read in place of their results, if he refuses."""
        listed = getattr(state["messages"][-1], "tool_calls", [])
        asked = [c for c in listed if c["name"] == self.name and c["args"]["amount"] >= ASKS]
        if not asked or interrupt([call["args"] for call in asked]) == "yes":
            return []
        return [ToolMessage("refused", name=c["name"], tool_call_id=c["id"]) for c in listed]

    def tell(self, text: str) -> tuple[Any, ...]:
        """How the run ends after this message or answer, what has run, what is stored and read."""
        before = len(self.model.seen)
        value: Any = {"messages": [HumanMessage(text, id=f"h{before}")]}
        if text in {"yes", "no"}:
            (question,) = self.graph.get_state(CONFIG).interrupts
            decision = {"type": "approve" if text == "yes" else "reject"}
            is_middleware = "action_requests" in question.value
            value = Command(resume={"decisions": [decision]} if is_middleware else text)
        try:
            state = self.graph.invoke(value, CONFIG)
            end = [i.value for i in state.get("__interrupt__", ())] or state["messages"][-1].text
        except (RuntimeError, ValueError) as error:
            end = error
        stored = self.graph.get_state(CONFIG).values["messages"]
        return end, sorted(self.ledger), *map(as_json, [stored, *self.model.seen[before:]])

    def results(self) -> Iterator[tuple[str, ToolMessage]]:
        """Each result that the model read last, after what its tool does: `paid 5`."""
        open_calls: list[ToolCall] = []
        for message in self.model.seen[-1]:
            if isinstance(message, AIMessage):
                open_calls = [*message.tool_calls]
            elif isinstance(message, ToolMessage):
                call = next(c for c in open_calls if c["id"] == message.tool_call_id)
                open_calls.remove(call)
                verb = "paid" if call["name"] == self.name else "saw"
                yield f"{verb} {call['args']['amount']}", message


def as_json(messages: Sequence[BaseMessage]) -> list[str]:
    """Each message, but for the ids that LangGraph gives to results."""
    return [
        m.model_dump_json(exclude={"id"} if isinstance(m, ToolMessage) else None) for m in messages
    ]


# --- the graphs ------------------------------------------------------------------------------


def create_agent(story: Story) -> Any:
    """Its tool asks."""
    return BARE["create_agent"](story.model, story.tools(ask=True), InMemorySaver())


def approval_middleware(story: Story) -> Any:
    """A middleware asks about a tool that it knows by its name."""

    def asks(request: Any) -> bool:
        return bool(request.tool_call["args"]["amount"] >= ASKS)

    named: Any = {story.name: {"allowed_decisions": ["approve", "reject"], "when": asks}}
    middleware = [HumanInTheLoopMiddleware(interrupt_on=named)]
    return BARE["create_agent"](story.model, story.tools(), InMemorySaver(), middleware=middleware)


def limit_middleware(story: Story) -> Any:
    """A middleware counts the calls of a tool that it knows by its name."""
    middleware = [ToolCallLimitMiddleware(tool_name=story.name, run_limit=1)]
    tools = story.tools(ask=True)
    return BARE["create_agent"](story.model, tools, InMemorySaver(), middleware=middleware)


def hook(story: Story) -> Any:
    """A hook asks behind the model."""

    def ask(state: Any) -> dict[str, Any]:
        return {"messages": story.refusals(state)}

    return BARE["react_v2"](story.model, story.tools(), InMemorySaver(), post_model_hook=ask)


def tool_node(story: Story) -> Any:
    """A tool of a `ToolNode` asks."""
    return BARE["hand_built"](story.model, story.tools(ask=True), InMemorySaver())


def send(story: Story) -> Any:
    """The same, with a task for each call."""
    builder = loop(story.model, story.tools(ask=True), router=send_each)
    return builder.compile(checkpointer=InMemorySaver())


def tool_function(story: Story) -> Any:
    """A function asks, and runs the tools."""

    def run(state: Any) -> dict[str, Any]:
        calls, tools = state["messages"][-1].tool_calls, story.tools()
        by_name = {tool.name: tool for tool in tools}
        found = story.refusals(state) or [by_name[call["name"]].invoke(call) for call in calls]
        return {"messages": found}

    builder = loop(story.model, [])
    del builder.nodes["tools"]
    return builder.add_node("tools", run).compile(checkpointer=InMemorySaver())


def approval_node(story: Story) -> Any:
    """A node of its own asks."""

    def ask(state: Any) -> Command[Any]:
        refusals = story.refusals(state)
        return Command(goto="agent" if refusals else "tools", update={"messages": refusals})

    def route(state: Any) -> str:
        return "approval" if state["messages"][-1].tool_calls else "__end__"

    builder = loop(story.model, story.tools())
    builder.branches.clear()
    builder.add_node("approval", ask, destinations=("agent", "tools"))
    builder.add_conditional_edges("agent", route, ["approval", "__end__"])
    return builder.compile(checkpointer=InMemorySaver())


def swarm(story: Story) -> Any:
    """A tool of an agent asks that is a node."""
    alice = BARE["create_agent"](story.model, story.tools(ask=True), None, name="alice")
    bob = BARE["create_agent"](StrictModel(), [], None, name="bob")
    return create_swarm([alice, bob], default_active_agent="alice").compile(InMemorySaver())


def patched(kind: Any) -> Any:
    """The patched graph; with `record=True` a `ToolNode` runs as if each call was sent."""
    recorded = kind is send
    kind = tool_node if recorded else kind
    return lambda story: with_patching(kind(story), record=recorded)


KINDS = [
    create_agent,
    approval_middleware,
    hook,
    limit_middleware,  # no colon: it names a node after the tool
    tool_node,
    send,
    tool_function,
    approval_node,
    swarm,
]
DIE_BARE = [(hook, IDS[2]), (hook, IDS[3]), (limit_middleware, IDS[3])]
"""In these the bare graph takes the result of one call for that of another with the same id."""
CELLS = [
    pytest.param(kind, NAMES[(row + column) % len(NAMES)], ids, id=f"{kind.__name__}-{column}")
    for row, kind in enumerate(KINDS)
    for column, ids in enumerate(IDS)
]


def pytest_generate_tests(metafunc: Any) -> None:
    """Tell each story with two of the forms of ids in turn; with all with `--long`."""
    if "ids" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--long")
        cells = [c for n, c in enumerate(CELLS) if is_long or (n + n // len(IDS)) % len(IDS) < 2]
        metafunc.parametrize(("kind", "name", "ids"), cells)


def test_what_is_alive_stays_and_what_died_goes_on(kind: Any, name: str, ids: str):
    """Healthy, paused, answered: as bare. Abandoned, failed: alive, and no result is false."""
    bare, story = Story(kind, name, ids), Story(patched(kind), name, ids)
    for text in ALIVE:
        expected = bare.tell(text)
        if isinstance(expected[0], Exception):
            assert (kind, ids) in DIE_BARE
            break
        found = story.tell(text)
        if kind is tool_node:  # what is certain
            expected, found = (
                (end, [work for work in ran if work != BESIDE], *rest)
                for end, ran, *rest in (expected, found)
            )
        assert found == expected
    ends = [story.tell(text)[0] for text in BROKEN]
    assert not [end for end in ends if isinstance(end, ValueError)]
    assert "paid 170" not in story.ledger
    assert max(map(story.ledger.count, ["paid 13", "paid 180", "saw 17"])) <= 1
    for work, result in story.results():
        has_run = work in story.ledger
        cause = is_placeholder(result) and result.additional_kwargs["langgraph_patch"]["cause"]
        if not cause:
            assert (result.text == work) == has_run
        elif cause != "unknown":
            assert (cause == "failed") == has_run


def test_a_model_that_is_asked_again_reads_the_names_of_its_tools():
    """In the plain form: it calls a tool as it read its name, and a human is asked."""

    class Strict(StrictModel):
        """Refuses the id of another provider; its own are short."""

        def _line(self, messages: Any) -> Any:
            ids = [c["id"] for m in messages if m.type == "ai" for c in m.tool_calls]
            if any(len(each) > 40 for each in ids):
                self.seen.append(list(messages))
                raise TooLongError
            return super()._line(messages)

    def pays(name: str, call_id: str) -> AIMessage:
        listed = {"name": name, "args": {"amount": 5}, "id": call_id, "type": "tool_call"}
        return AIMessage("", tool_calls=[listed])

    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    long = "x" * 50
    model = Strict(script=[lambda messages: pays(messages[1].tool_calls[0]["name"], "c2")])
    approval = HumanInTheLoopMiddleware(interrupt_on={"bank.pay": True})
    tools = [tool_of(pay, "bank.pay")]
    bare = BARE["create_agent"](model, tools, InMemorySaver(), middleware=[approval])
    agent = with_patching(bare)
    old = [HumanMessage("pay"), pays("bank.pay", long), ToolMessage("paid", tool_call_id=long)]
    state = agent.invoke({"messages": [*old, HumanMessage("again")]}, CONFIG)
    assert "__interrupt__" in state
    assert [len(seen) for seen in model.seen] == [4, 4]
    stored = agent.get_state(CONFIG).values["messages"][1]
    assert stored.tool_calls == old[1].tool_calls


class TooLongError(ValueError):
    """What a provider answers."""

    status_code = 400
