"""The abandoned turn of an agent that is a node: LangGraph drops it, START adds it."""

from __future__ import annotations

import asyncio
import logging
import operator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.channels import LastValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Send, interrupt
from langgraph_swarm import create_handoff_tool, create_swarm
from typing_extensions import TypedDict

from kit import (
    NESTED,
    TOLD,
    Agent,
    Desk,
    StrictModel,
    above,
    calling,
    calls,
    kill,
    loop,
    results_in,
)
from langgraph_patch import Patch, set_language, validate_messages, with_patching
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.effects import has_value, is_equal
from support.databases import running_postgres
from support.running import in_turn
from support.savers import Counting
from support.strict import refuse

MAIL = ("mail", {"to": "bob"})
WIRE = ("wire", {"amount": 5})
BOOM = ("boom", {"text": "x"})
TURN = calls(MAIL, WIRE)
WAITED = (
    "Tool call wire with id {} was waiting for human input when another message came in; "
    "no answer and no result were recorded."
)
FAILED = "Tool call boom with id c2 failed in its last recorded attempt: RuntimeError('kaput x')"
UNKNOWN = "No result of tool call wire with id c2 is known; it may or may not have run."

both_ways = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def shown(messages: list[BaseMessage]) -> list[str]:
    """A line for each message: its type, and its calls or its text."""
    return [
        f"{m.type}: {', '.join(c['name'] for c in getattr(m, 'tool_calls', ())) or m.text}"
        for m in messages
    ]


def turn(*results: str, ask: str = "pay bob", say: str = "never mind") -> list[str]:
    """The history of an abandoned turn with two calls."""
    return [
        f"human: {ask}",
        "ai: mail, wire",
        *(f"tool: {text}" for text in results),
        f"human: {say}",
    ]


def told(name: str, *lines: str) -> str:
    """The message about a turn of an agent that a function called."""
    first = f"No answer of {name} was recorded. What was recorded of its tool calls:"
    return "\n".join([f"ai: {first}", *lines])


TOLD_LINES = (
    '- mail({"to": "bob"}): sent to bob',
    f'- wire({{"amount": 5}}): {WAITED.format("c2")}',
)


# --- every kind, every way to stop -----------------------------------------------------------


@pytest.mark.parametrize(("kind", "asynchronous"), in_turn(NESTED, [False, True]))
def test_a_pause_that_is_abandoned(kind: str, *, asynchronous: bool):
    """The model reads the whole turn; it is stored once, and no tool runs again."""
    agent = Agent(kind, TURN, asynchronous=asynchronous)
    agent.say("pay bob")
    agent.say("never mind")
    expected = turn("sent to bob", WAITED.format("c2"))
    assert shown(agent.model.seen[-1]) == expected
    assert shown(agent.history) == [*expected, "ai: done"]
    agent.say("hello")
    assert shown(agent.history) == [*expected, "ai: done", "human: hello", "ai: done"]
    assert validate_messages(agent.history) == []
    assert agent.desk.did == {"mail bob": 1}


@pytest.mark.parametrize(("kind", "asynchronous"), in_turn(TOLD, [True, False]))
def test_a_pause_of_an_agent_that_a_function_calls(kind: str, *, asynchronous: bool):
    """The model reads one message in the name of the node, and no tool call of the agent."""
    agent = Agent(kind, TURN, asynchronous=asynchronous)
    agent.say("pay bob")
    agent.say("never mind")
    [text] = [m for m in agent.history if "langgraph_patch" in m.additional_kwargs]
    assert shown([text]) == [told("node1", *TOLD_LINES)]
    assert text.name == "node1"
    assert shown(agent.history)[-3:-1] != shown([text])
    seen = agent.model.seen[-1]
    assert shown(seen).index(told("node1", *TOLD_LINES)) < shown(seen).index("human: never mind")
    assert "c1" not in results_in(agent.history)
    agent.say("hello")
    assert shown(agent.history).count(told("node1", *TOLD_LINES)) == 1
    assert agent.desk.did == {"mail bob": 1}


@pytest.mark.parametrize(("kind", "asynchronous"), in_turn(NESTED, [False, True]))
def test_a_run_that_failed(kind: str, *, asynchronous: bool):
    """The result beside the error is real, and the error is that of its call."""
    agent = Agent(kind, calls(MAIL, BOOM), asynchronous=asynchronous)
    with pytest.raises(RuntimeError, match="kaput"):
        agent.say("pay bob")
    agent.say("never mind")
    assert agent.results == {"c1": "sent to bob", "c2": FAILED}
    assert shown(agent.history)[-2:] == ["human: never mind", "ai: done"]
    assert agent.desk.did == {"mail bob": 1}


@pytest.mark.parametrize(("kind", "asynchronous"), in_turn(TOLD, [True, False]))
def test_a_failed_run_of_an_agent_that_a_function_calls(kind: str, *, asynchronous: bool):
    """The message names the error."""
    agent = Agent(kind, calls(MAIL, BOOM), asynchronous=asynchronous)
    with pytest.raises(RuntimeError, match="kaput"):
        agent.say("pay bob")
    agent.say("never mind")
    lines = TOLD_LINES[0], f'- boom({{"text": "x"}}): {FAILED}'
    assert told("node1", *lines) in shown(agent.history)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["node", "delta_as_node", "swarm", "supervisor"])
def test_a_process_that_was_killed(kind: str, tmp_path: Path):
    """The mail of the killed run is known; what the killed tool did is not."""
    done = kill(kind, tmp_path / "db")
    agent = Agent(kind, AIMessage("done"), AIMessage("done"), saver=tmp_path / "db")
    agent.model.script = []
    agent.say("never mind")
    assert done == {"mail bob": 1}
    if kind in NESTED:
        assert agent.results == {"c1": "sent to bob", "c2": UNKNOWN}
    else:
        lines = TOLD_LINES[0], f'- wire({{"amount": 5}}): {UNKNOWN}'
        assert told("node1", *lines) in shown(agent.history)
    assert agent.desk.did == {}


@pytest.mark.parametrize(("kind", "asynchronous"), in_turn([*NESTED, *TOLD], [True, False]))
def test_a_resume_is_untouched(kind: str, *, asynchronous: bool):
    """An answer reaches its call, and no node of this package runs."""
    agent = Agent(kind, TURN, asynchronous=asynchronous)
    agent.say("pay bob")
    agent.resume()
    assert agent.desk.did == {"mail bob": 1, "wire 5": 1}
    assert not any("langgraph_patch" in m.additional_kwargs for m in agent.history)
    assert agent.model.seen[-1][-1].text
    nodes = {t.name for state in agent.graph.get_state_history(agent.config) for t in state.tasks}
    assert "patch_tool_calls" not in nodes


@pytest.mark.parametrize(
    ("kind", "durability"),
    in_turn(["node", "two_levels", "delta_as_node", "supervisor"], ["sync", "exit", "async"]),
)
def test_several_in_a_row_with_any_durability(kind: str, durability: str):
    """Each turn stands before the message that abandoned it, once."""
    other = calls(("mail", {"to": "eve"}), WIRE, first=3)
    script = [TURN, other] if kind != "supervisor" else [TURN, transfer("h2"), other]
    agent = Agent(kind, *script)
    for text in ("pay bob", "pay eve", "never mind"):
        agent.say(text, durability=durability)
    history = shown(agent.history)
    if kind == "supervisor":
        lines = (
            '- mail({"to": "eve"}): sent to eve',
            f'- wire({{"amount": 5}}): {WAITED.format("c4")}',
        )
        first, second = told("node1", *TOLD_LINES), told("node1", *lines)
        places = [history.index(x) for x in (first, "human: pay eve", second, "human: never mind")]
        assert places == sorted(places)
        assert history.count(first) == history.count(second) == 1
    else:
        first = turn("sent to bob", WAITED.format("c2"), say="pay eve")
        second = turn("sent to eve", WAITED.format("c4"), ask="pay eve")
        assert history == [*first, *second[1:], "ai: done"]
    assert agent.desk.did == {"mail bob": 1, "mail eve": 1}


def transfer(call_id: str) -> AIMessage:
    """The boss hands over."""
    call = {"name": "transfer_to_node1", "args": {}, "id": call_id, "type": "tool_call"}
    return AIMessage("", tool_calls=[call])


# --- the first example of the README ---------------------------------------------------------


def readme() -> tuple[str, str]:
    """The text of the recovered result and of the placeholder in the README's first example."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    lines = [line.removeprefix("+ [tool] ") for line in text.splitlines() if line[:2] == "+ "]
    return lines[0], lines[1]


@pytest.mark.parametrize("kind", ["swarm", "node", "supervisor", "called"])
def test_the_first_example_of_the_readme_holds(kind: str):
    """Word for word: the result of the mail, and what is known of the wire."""

    @tool
    def send_email(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    @tool
    def wire_money(amount: int) -> str:
        """Wire money."""
        return interrupt(f"wire {amount}?")

    turn = calls(("send_email", {"to": "bob"}), ("wire_money", {"amount": 100}))
    agent = Agent(kind, turn, desk=Tools(send_email, wire_money))
    agent.say("Write to Bob and wire him 100.")
    agent.say("Never mind the money. What did you do?")
    read = "\n".join(shown(agent.model.seen[-1]))
    assert all(text in read for text in readme())
    assert read.index(readme()[1]) < read.index("Never mind the money.")


class Tools:
    """Other tools than those of the kit."""

    def __init__(self, *tools: Any) -> None:
        self.own = tools

    def tools(self) -> list[Any]:
        """The tools."""
        return list(self.own)


# --- what clients see ------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "asynchronous"), in_turn(["node", "swarm"], [False, True]))
def test_the_updates_show_the_new_messages(kind: str, *, asynchronous: bool):
    """One chunk with the messages of the turn, and of the tokens the tool messages only."""
    agent = Agent(kind, TURN, asynchronous=asynchronous)
    agent.say("pay bob")
    chunks = agent.stream({"messages": [HumanMessage("never mind")]}, ["updates", "messages"])
    updates = [chunk for mode, chunk in chunks if mode == "updates"]
    [new] = [
        chunk["patch_tool_calls"]["messages"] for chunk in updates if "patch_tool_calls" in chunk
    ]
    assert shown(new) == turn("sent to bob", WAITED.format("c2"))[1:-1]
    tokens = [chunk[0] for mode, chunk in chunks if mode == "messages"]
    assert {m.type for m in tokens if m.id in {each.id for each in new}} <= {"tool"}


def test_it_is_reported(caplog: pytest.LogCaptureFixture):
    """`on_patch` gets the changes, with a kind of their own, and the log has a line."""
    patches: list[Patch] = []
    agent = Agent("node", TURN, on_patch=lambda patch, _: patches.append(patch))
    agent.say("pay bob")
    with caplog.at_level(logging.INFO, "langgraph_patch"):
        agent.say("never mind")
    [patch] = patches
    found = [(change.kind, change.defect, change.index) for change in patch.changes]
    assert found == [
        ("restored", "abandoned", 1),
        ("recovered", "dangling", 1),
        ("inserted", "dangling", 1),
    ]
    assert shown(patch.before) == ["human: pay bob", "human: never mind"]
    assert patch.messages == agent.history[:-1]
    assert "restored AIMessage" in caplog.text
    assert "restores" not in patch._repr_html_() or patch.to_dict()["changes"]


def test_an_error_in_on_patch_loses_nothing():
    """The run fails, nothing is written, and the next run adds the turn, however it is started."""
    fails = [True, True]

    def on_patch(patch: Patch, config: RunnableConfig) -> None:
        if fails:
            fails.pop()
            raise ConnectionError("no audit")

    for start in (None, {"messages": [HumanMessage("hello")]}):
        fails[:] = [True]
        agent = Agent("node", TURN, on_patch=on_patch)
        agent.say("pay bob")
        with pytest.raises(ConnectionError, match="no audit"):
            agent.say("never mind")
        agent.run(start)
        more = ["human: hello"] if start else []
        expected = [*turn("sent to bob", WAITED.format("c2")), *more, "ai: done"]
        assert shown(agent.history) == expected


# --- forks and replays -----------------------------------------------------------------------


def test_a_fork_before_an_abandoned_turn_gets_it():
    """The pause is abandoned on this branch as well."""
    agent = Agent("node", TURN)
    agent.say("pay bob")
    paused = agent.graph.get_state(agent.config).config
    agent.say("never mind")
    agent.graph.invoke({"messages": [HumanMessage("other")]}, paused)
    assert shown(agent.history) == [
        *turn("sent to bob", WAITED.format("c2"), say="other"),
        "ai: done",
    ]


def test_an_answer_is_regenerated():
    """`invoke(None)` at the input that abandoned the pause: the turn is on the new branch, once."""
    agent = Agent("node", TURN)
    agent.say("pay bob")
    agent.say("never mind")
    states = list(agent.graph.get_state_history(agent.config))
    [place] = [
        s.config for s in states if s.metadata["source"] == "input" and s.metadata["step"] > 0
    ]
    agent.graph.invoke(None, place)
    expected = [*turn("sent to bob", WAITED.format("c2")), "ai: done"]
    assert shown(agent.history) == expected
    agent.say("hello")
    assert shown(agent.history) == [*expected, "human: hello", "ai: done"]


def test_an_update_between_the_pause_and_the_message():
    """The turn stands where it began: before what the user has stored since."""
    agent = Agent("node", TURN)
    agent.say("pay bob")
    agent.graph.update_state(agent.config, {"messages": [SystemMessage("be brief")]})
    agent.say("never mind")
    expected = turn("sent to bob", WAITED.format("c2"))
    assert shown(agent.history) == [*expected[:-1], "system: be brief", expected[-1], "ai: done"]


# --- inputs that edit the history ------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (RemoveMessage(id=REMOVE_ALL_MESSAGES), []),
        (RemoveMessage(id="h1"), []),
        (
            HumanMessage("pay eve", id="h1"),
            turn("sent to bob", WAITED.format("c2"), ask="pay eve")[:-1],
        ),
    ],
    ids=["all removed", "question removed", "question replaced"],
)
def test_an_input_that_edits_the_question(edit: BaseMessage, expected: list[str]):
    """Without the question nothing is added; with another text it stands before the turn."""
    agent = Agent("node", TURN)
    agent.run({"messages": [HumanMessage("pay bob", id="h1")]})
    agent.run({"messages": [edit, HumanMessage("never mind")]})
    assert shown(agent.history) == [*expected, "human: never mind", "ai: done"]


def test_an_input_without_a_message():
    """No message came in, and no placeholder says so."""

    class Noted(MessagesState):
        note: str

    def build(model: Any, tools: Any, saver: Any) -> Any:
        return with_patching(
            above(create_agent(model, tools), state=Noted).compile(checkpointer=saver)
        )

    agent = Agent(build, TURN)
    agent.say("pay bob")
    agent.run({"note": "x"})
    assert agent.results["c2"].startswith("Tool call wire with id c2 was waiting")
    assert "message came in" not in agent.results["c2"]
    assert "pause was ended" in agent.results["c2"]


@both_ways
def test_a_pause_after_a_handoff_with_another_call(*, asynchronous: bool):
    """LangGraph drops the result beside a handoff; it and the turn of the other agent are added."""
    desk = Desk()
    both = calls(MAIL, ("transfer_to_bob", {}), first=7)

    def build(model: Any, tools: Any, saver: Any) -> Any:
        alice = create_agent(
            StrictModel(script=[both]),
            [*tools, create_handoff_tool(agent_name="bob")],
            name="alice",
        )
        bob = create_agent(model, tools, name="bob")
        swarm = create_swarm([alice, bob], default_active_agent="alice")
        return with_patching(swarm.compile(checkpointer=saver))

    agent = Agent(build, calls(("mail", {"to": "eve"}), WIRE), desk=desk, asynchronous=asynchronous)
    agent.say("pay bob")
    agent.say("never mind")
    assert {call: text for call, text in agent.results.items() if call != "c8"} == {
        "c7": "sent to bob",
        "c1": "sent to eve",
        "c2": WAITED.format("c2"),
    }
    assert shown(agent.history)[-2:] == ["human: never mind", "ai: done"]
    assert validate_messages(agent.history) == []
    assert desk.did == {"mail bob": 1, "mail eve": 1}


@both_ways
def test_a_handoff_beside_an_agent_that_waits(*, asynchronous: bool):
    """The message of the handoff has no id yet; with one, it is added once, and shown."""
    desk = Desk()

    def build(model: Any, tools: Any, saver: Any) -> Any:
        alice = create_agent(model, tools, name="alice")
        handoff = create_handoff_tool(agent_name="alice")
        away = calls(("transfer_to_alice", {}), first=7)
        bob = create_agent(StrictModel(script=[away]), [handoff], name="bob")
        swarm = create_swarm([alice, bob], default_active_agent="alice")
        return with_patching(swarm.compile(checkpointer=saver))

    agent = Agent(build, TURN, desk=desk, asynchronous=asynchronous)
    agent.say("pay bob")
    agent.run(Command(goto="bob"))
    chunks = agent.stream({"messages": [HumanMessage("never mind")]}, "messages")
    assert agent.results["c7"] == "Successfully transferred to alice"
    assert agent.results["c1"] == "sent to bob"
    assert "c7" in [getattr(message, "tool_call_id", None) for message, _ in chunks]
    agent.say("well?")
    ids = [message.id for message in agent.history]
    assert len(ids) == len(set(ids))
    assert None not in ids
    assert desk.did == {"mail bob": 1}


# --- two agents in one superstep -------------------------------------------------------------


def side_by_side(model: Any, tools: Any, saver: Any, *, sends: bool = False, **options: Any) -> Any:
    """Two agents in one superstep: `zoe` has the model of the kit, `amy` only mails."""
    mails = calls(("mail", {"to": "amy"}), first=8)
    amy = create_agent(type(model)(script=[mails, AIMessage("amy is done")]), tools)
    builder = (
        StateGraph(MessagesState).add_node("zoe", create_agent(model, tools)).add_node("amy", amy)
    )
    if sends:
        builder.add_conditional_edges(
            START, lambda s: [Send("zoe", s), Send("amy", s)], ["zoe", "amy"]
        )
    else:
        builder.add_edge(START, "zoe").add_edge(START, "amy")
    return with_patching(builder.compile(checkpointer=saver), **options)


@both_ways
@pytest.mark.parametrize("sends", [False, True], ids=["edges", "sends"])
def test_two_agents_of_which_one_has_ended(*, sends: bool, asynchronous: bool):
    """Both turns are added, in the order of LangGraph: nodes by name, or by `Send`."""
    agent = Agent(
        lambda *args, **options: side_by_side(*args, sends=sends, **options),
        TURN,
        asynchronous=asynchronous,
    )
    agent.say("pay bob")
    agent.say("never mind")
    zoe = turn("sent to bob", WAITED.format("c2"))[1:-1]
    amy = ["ai: mail", "tool: sent to amy", "ai: amy is done"]
    turns = [*zoe, *amy] if sends else [*amy, *zoe]
    end = shown(agent.history).index("human: never mind")
    assert shown(agent.history)[:end] == ["human: pay bob", *turns]
    assert agent.desk.did == {"mail bob": 1, "mail amy": 1}


def test_ids_that_both_agents_use():
    """Each call has its own result, under a new id where one was used twice."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        twin = type(model)(script=[calls(("mail", {"to": "eve"}), WIRE)])
        builder = above(create_agent(model, tools))
        builder.add_node("other", create_agent(twin, tools)).add_edge(START, "other")
        return with_patching(builder.compile(checkpointer=saver))

    agent = Agent(build, TURN)
    agent.say("pay bob")
    agent.say("never mind")
    end = shown(agent.history).index("human: never mind")
    added = agent.history[1:end]
    refuse(added)
    said = results_in(added)
    for message in added:
        for call in getattr(message, "tool_calls", ()):
            expected = (
                f"sent to {call['args']['to']}"
                if call["name"] == "mail"
                else WAITED.format(call["id"])
            )
            assert said[call["id"]] == expected
    assert len(said) == 4


# --- other state keys ------------------------------------------------------------------------


class Filed(TypedDict):
    """A state in which tools write."""

    messages: Annotated[list[AnyMessage], add_messages]
    files: Annotated[dict[str, str], operator.or_]
    notes: Annotated[list[str], operator.add]
    owner: str


class Shared(TypedDict):
    """The state of a graph above."""

    messages: Annotated[list[AnyMessage], add_messages]
    files: Annotated[dict[str, str], operator.or_]


def filing(tools: Any, model: Any) -> Any:
    """An agent whose tool `file` writes three state keys."""

    def file(state: Filed) -> Any:
        call = state["messages"][-1].tool_calls[0]
        result = ToolMessage(f"Updated {call['args']['name']}", tool_call_id=call["id"])
        written = {"files": {call["args"]["name"]: "x"}, "notes": ["n"], "owner": "ann"}
        return {"messages": [result], **written}

    def route(state: Filed) -> Any:
        names = [call["name"] for call in state["messages"][-1].tool_calls]
        return "file" if names == ["file"] else "tools" if names else "__end__"

    child = loop(model, tools, state=Filed)
    child.add_node("file", file)
    child.add_edge("file", "agent")
    child.branches["agent"].clear()
    child.add_conditional_edges("agent", route, ["file", "tools", "__end__"])
    return child.compile()


def filing_as_node(model: Any, tools: Any, saver: Any) -> Any:
    """It is a node."""
    graph = above(filing(tools, model), state=Filed)
    return with_patching(graph.compile(checkpointer=saver), record=True)


FILES = calls(("file", {"name": "one"}), first=5)


def test_other_keys_that_the_agent_had_written_are_restored():
    """What a committed result states is in the state of the graph above."""
    agent = Agent(filing_as_node, FILES, TURN)
    agent.run({"messages": [HumanMessage("go")], "files": {"old": "y"}, "notes": ["o"]})
    agent.say("never mind")
    values = agent.graph.get_state(agent.config).values
    assert agent.results["c5"] == "Updated one"
    assert values["files"] == {"old": "y", "one": "x"}
    assert values["notes"][:2] == ["o", "n"]
    assert values["owner"] == "ann"


def test_values_that_cannot_be_compared_are_named():
    """An array, say: no error, and no result states what the state may not have."""

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    assert not is_equal(Odd(), Odd())
    channel = LastValue(Odd)
    channel.update([Odd()])
    assert not has_value(channel, Odd())
    assert not has_value(channel, None)


def test_other_keys_that_the_input_writes_are_named():
    """The input's value stays, and no result states what the state does not have."""
    agent = Agent(filing_as_node, FILES, TURN)
    agent.run({"messages": [HumanMessage("go")], "files": {"old": "y"}})
    agent.run({"messages": [HumanMessage("never mind")], "owner": "eve"})
    [text] = [m.text for m in agent.history if "langgraph_patch" in m.additional_kwargs]
    assert text.splitlines() == [
        "Its values of these state keys were not kept: files, notes, owner.",
        "No answer of node1 was recorded. What was recorded of its tool calls:",
        '- file({"name": "one"}): Updated one',
        *TOLD_LINES,
    ]
    assert agent.graph.get_state(agent.config).values["owner"] == "eve"


def test_a_key_that_two_agents_changed_is_restored_once():
    """The other agent's turn is told, with the key that is not kept."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        agents = []
        for own, name in ((model, "one"), (type(model)(), "two")):
            own.script = [calls(("file", {"name": name}), first=5), calls(WIRE, first=7)]
            agents.append(filing(tools, own))
        builder = StateGraph(Shared).add_node("one", agents[0]).add_node("two", agents[1])
        builder.add_edge(START, "one").add_edge(START, "two")
        return with_patching(builder.compile(checkpointer=saver), record=True)

    agent = Agent(build)
    agent.say("go")
    agent.say("never mind")
    assert agent.graph.get_state(agent.config).values["files"] == {"one": "x"}
    assert agent.results["c5"] == "Updated one"
    [text] = [m.text for m in agent.history if "turn_of" in str(m.additional_kwargs)]
    assert text.startswith("Its values of these state keys were not kept: files.")
    assert '- file({"name": "two"}): Updated two' in text


# --- what is no abandoned turn ---------------------------------------------------------------


def test_an_agent_with_another_history_adds_nothing():
    """It got a task message of its own: its messages do not continue this history."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        agent = create_agent(model, tools)
        fresh = calling(agent).with_config()
        node = (lambda _: {"messages": [HumanMessage("task")]}) | fresh
        graph = above(node)
        return with_patching(graph.compile(checkpointer=saver))

    agent = Agent(build, TURN)
    agent.say("pay bob")
    agent.say("never mind")
    assert shown(agent.history) == ["human: pay bob", "human: never mind", "ai: done"]


def test_a_subagent_in_a_tool_that_continues_the_history_adds_nothing():
    """Nothing comes between a call and its result."""
    inner = type(Agent("node").model)(script=[calls(MAIL, WIRE, first=5)])
    desk = Agent("node").desk
    sub = with_patching(create_agent(inner, desk.tools()))

    def build(model: Any, tools: Any, saver: Any) -> Any:
        def ask(state: MessagesState) -> Any:
            return sub.invoke({"messages": [*state["messages"], HumanMessage("task")]})

        graph = loop(model, tools)
        graph.nodes.pop("tools")
        graph.add_node("tools", ask)
        return with_patching(graph.compile(checkpointer=saver))

    agent = Agent(build, calls(("mail", {"to": "sub"})))
    agent.say("pay bob")
    agent.say("never mind")
    assert [line.partition(":")[0] for line in shown(agent.history)] == [
        "human",
        "ai",
        "tool",
        "human",
        "ai",
    ]
    assert validate_messages(agent.history) == []


def test_an_agent_with_a_memory_of_its_own_keeps_its_past():
    """Of an agent with `checkpointer=True` only the turn is added, and it gets it back once."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        agent = loop(model, tools).compile(checkpointer=True)
        return with_patching(above(agent).compile(checkpointer=saver), record=True)

    agent = Agent(build, AIMessage("hi"), TURN)
    agent.say("hello")
    agent.say("pay bob")
    agent.say("never mind")
    expected = ["human: hello", "ai: hi", *turn("sent to bob", WAITED.format("c2"))]
    assert shown(agent.history) == [*expected, "ai: done"]
    assert shown(agent.model.seen[-1]) == expected


def test_a_pause_between_agents_adds_nothing_twice():
    """An agent that has ended is in the history: a pause of a later node restores nothing of it."""

    def approve(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("publish?"))]}

    def build(model: Any, tools: Any, saver: Any) -> Any:
        graph = above(create_agent(model, tools), approve)
        return with_patching(graph.compile(checkpointer=saver))

    agent = Agent(build, calls(MAIL), AIMessage("mailed"))
    agent.say("pay bob")
    before = shown(agent.history)
    agent.stream({"messages": [HumanMessage("never mind")]})
    assert shown(agent.history)[: len(before) + 1] == [*before, "human: never mind"]
    assert shown(agent.history).count("ai: mail") == 1


# --- what it costs ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["node", "delta_as_node", "swarm", "supervisor"])
def test_a_healthy_turn_costs_nothing(kind: str):
    """No query, no write and no chunk more than those of the bare graph."""
    counts = []
    for options in ({}, {"recover": False}):
        saver = Counting()
        agent = Agent(kind, calls(MAIL), saver=saver, **options)
        chunks = [
            agent.stream({"messages": [HumanMessage(text)]}) for text in ("pay bob", "thanks")
        ]
        counts.append((saver.used, [len(each) for each in chunks]))
    assert counts[0] == counts[1]


# --- a checkpointer that fails ---------------------------------------------------------------


class Failing(InMemorySaver):
    """A checkpointer of which a namespace cannot be read."""

    fails = False

    def get_tuple(self, config: RunnableConfig) -> Any:
        if self.fails and config["configurable"].get("checkpoint_ns", "").startswith("node1:"):
            raise OSError("no disk")
        return super().get_tuple(config)


@pytest.mark.parametrize("recover", [True, "required"])
def test_a_checkpointer_that_cannot_be_read(recover: Any, caplog: pytest.LogCaptureFixture):
    """A WARNING says what is missing; with `"required"` the run fails, and can be repeated."""
    saver = Failing()
    agent = Agent("node", TURN, saver=saver, recover=recover)
    agent.say("pay bob")
    saver.fails = True
    if recover == "required":
        with pytest.raises(EvidenceError, match="no disk"):
            agent.say("never mind")
        saver.fails = False
        agent.run(None)
        assert agent.results == {"c1": "sent to bob", "c2": WAITED.format("c2")}
        return
    with pytest.raises(OSError, match="no disk"):  # of the agent itself
        agent.say("never mind")
    assert "What agents that are nodes did is not added" in caplog.text


# --- languages and names ---------------------------------------------------------------------


def test_the_message_of_a_function_in_chinese():
    """The language of the process is that of the message."""
    agent = Agent("called", TURN)
    agent.say("pay bob")
    set_language("zh")
    try:
        agent.say("never mind")
    finally:
        set_language("en")
    [text] = [m.text for m in agent.history if "langgraph_patch" in m.additional_kwargs]
    assert text.startswith("没有记录到 node1 的答复")


@pytest.mark.slow
@both_ways
def test_postgresql(*, asynchronous: bool):
    """Its filters are not relied on: the turn of each level is found, and no other."""
    with running_postgres() as server:
        uri = server.make()
        for kind in ("node", "three_levels", "supervisor"):
            thread = {"configurable": {"thread_id": kind}}
            if asynchronous:
                shown_lines = asyncio.run(_play_on_postgres(kind, uri, thread))
            else:
                with PostgresSaver.from_conn_string(uri) as saver:
                    agent = Agent(kind, TURN, saver=saver)
                    agent.config = thread
                    agent.say("pay bob")
                    agent.say("never mind")
                    shown_lines = shown(agent.history)
            if kind == "supervisor":
                assert told("node1", *TOLD_LINES) in shown_lines
            else:
                assert shown_lines == [*turn("sent to bob", WAITED.format("c2")), "ai: done"]


async def _play_on_postgres(kind: str, uri: str, thread: Any) -> list[str]:
    async with AsyncPostgresSaver.from_conn_string(uri) as saver:
        agent = Agent(kind, TURN, saver=saver)
        for text in ("pay bob", "never mind"):
            await agent.graph.ainvoke({"messages": [HumanMessage(text)]}, thread)
        state = await agent.graph.aget_state(thread)
        return shown(state.values["messages"])
