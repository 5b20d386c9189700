"""The abandoned turn of an agent that is a node: a scan finds it, and a repair adds it."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from langgraph_swarm import create_swarm

from kit import Agent, StrictModel, above, calling, calls, kill, loop, send_each
from langgraph_patch import validate_messages, with_patching
from langgraph_patch.threads import (
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)
from support.databases import on_both_databases, open_async_saver, open_saver, rows_of
from support.savers import Counting

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TURN = calls(MAIL, WIRE)
WAITED = (
    "Tool call wire with id {} was waiting for human input when another message came in; "
    "no answer and no result were recorded."
)


# --- graphs without this package --------------------------------------------------------------


def node(model: Any, tools: Any, saver: Any) -> Any:
    """`create_agent` as a node."""
    return above(create_agent(model, tools)).compile(checkpointer=saver)


def two_levels(model: Any, tools: Any, saver: Any) -> Any:
    """`create_agent` as the node of a graph that is a node."""
    return above(above(create_agent(model, tools)).compile()).compile(checkpointer=saver)


def hand_built(model: Any, tools: Any, saver: Any) -> Any:
    """A loop by hand, with a task for each call, as a node."""
    return above(loop(model, tools, router=send_each).compile()).compile(checkpointer=saver)


def swarm(model: Any, tools: Any, saver: Any) -> Any:
    """A swarm of two."""
    agents = [create_agent(model, tools, name="alice"), create_agent(model, [], name="bob")]
    return create_swarm(agents, default_active_agent="alice").compile(checkpointer=saver)


def called(model: Any, tools: Any, saver: Any) -> Any:
    """A function that calls an agent, and returns its last message."""
    return above(calling(create_agent(model, tools))).compile(checkpointer=saver)


GRAPHS = [node, two_levels, hand_built, swarm]
NAMES = {swarm: "alice"}
DONE = AIMessage("done")

every_graph = pytest.mark.parametrize("kind", GRAPHS, ids=lambda kind: kind.__name__)


def abandoned(kind: Callable[..., Any] = node, saver: Any = None, *script: Any) -> Agent:
    """An agent whose user wrote instead of answering; the model has answered that."""
    agent = Agent(kind, *(script or [TURN]), saver=saver)
    agent.say("pay bob")
    agent.say("never mind")
    return agent


def lines(messages: list[BaseMessage]) -> list[str]:
    """A line for each message: its type, and its calls or its text."""
    return [
        f"{m.type}: {', '.join(c['name'] for c in getattr(m, 'tool_calls', ())) or m.text}"
        for m in messages
    ]


def told(name: str = "node1", wired: str = WAITED.format("c2")) -> str:
    """The message about the turn."""
    return (
        f"ai: No answer of {name} was recorded. What was recorded of its tool calls:\n"
        f'- mail({{"to": "bob"}}): sent to bob\n- wire({{"amount": 5}}): {wired}'
    )


BEFORE = ["human: pay bob", "human: never mind", "ai: done"]
WHOLE = ["ai: mail, wire", "tool: sent to bob", f"tool: {WAITED.format('c2')}"]


def scanned(saver: Any) -> list[tuple[str, list[str]]]:
    """The status of each history, and the kinds of its defects."""
    return [(r.status, [c.defect for c in r.defects]) for r in scan_threads(saver)]


# --- scanned, repaired, continued, undone -------------------------------------------------------


@on_both_databases
@every_graph
def test_a_scan_finds_it_and_a_repair_tells_it(saver, path, kind):
    """Without the graph nobody knows what the node would have returned: one message tells it."""
    agent = abandoned(kind, saver)
    before = rows_of(path)
    [report] = [each for each in scan_threads(saver) if each.status != "healthy"]
    assert (report.status, report.namespace) == ("damaged", "")
    [defect] = report.defects
    assert (defect.kind, defect.defect, defect.index) == ("restored", "abandoned", 1)
    assert rows_of(path) == before
    repair = repair_thread(saver, agent.config, min_age=0)
    assert repair.outcome == "repaired"
    text = told(NAMES.get(kind, "node1"))
    assert lines(repair.patch.messages) == [BEFORE[0], text, *BEFORE[1:]]
    assert lines(report.patch.messages) == lines(agent.history) == lines(repair.patch.messages)
    assert scanned(saver) == [("healthy", [])]
    assert repair_thread(saver, agent.config, min_age=0).outcome == "healthy"
    assert undo_repair(saver, agent.config) == repair.before
    assert rows_of(path) == before


@on_both_databases
@every_graph
def test_with_the_graph_the_whole_turn_is_added(saver, path, kind):
    """The graph shows that the node is a graph, which would have returned these messages."""
    agent = abandoned(kind, saver)
    before = rows_of(path)
    repair = repair_thread(agent.graph, agent.config, min_age=0)
    assert lines(agent.history) == [BEFORE[0], *WHOLE, *BEFORE[1:]]
    assert [(c.kind, c.defect, c.index) for c in repair.patch.changes] == [
        ("restored", "abandoned", 1),
        ("recovered", "dangling", 1),
        ("inserted", "dangling", 1),
    ]
    assert lines(repair.patch.before) == BEFORE
    for target in (agent.graph, saver):
        assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"
    undo_repair(saver, agent.config)
    assert rows_of(path) == before


@pytest.mark.parametrize("with_graph", [False, True], ids=["saver", "graph"])
@every_graph
def test_the_next_turn_reads_it(kind, with_graph):
    """The model reads a valid history with the turn, and no tool runs again."""
    agent = abandoned(kind)
    target = agent.graph if with_graph else agent.graph.checkpointer
    repair_thread(target, agent.config, min_age=0)
    repaired = lines(agent.history)
    agent.say("hello")
    assert lines(agent.model.seen[-1]) == [*repaired, "human: hello"]
    assert lines(agent.history) == [*repaired, "human: hello", "ai: done"]
    assert validate_messages(agent.history) == []
    assert agent.desk.did == {"mail bob": 1}
    assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"


@every_graph
def test_asynchronously(kind, tmp_path):
    """The asynchronous forms do the same."""

    async def play() -> tuple[list[str], list[str], list[str]]:
        async with open_async_saver(str(tmp_path / "db")) as saver:
            agent = Agent(kind, TURN, saver=saver)
            for text in ("pay bob", "never mind"):
                await agent.graph.ainvoke({"messages": [HumanMessage(text)]}, agent.config)
            found = [str(report.status) async for report in ascan_threads(saver)]
            repair = await arepair_thread(agent.graph, agent.config, min_age=0)
            await aundo_repair(saver, agent.config)
            other = await arepair_thread(saver, agent.config, min_age=0)
            return found, lines(repair.patch.messages), lines(other.patch.messages)

    found, whole, text = asyncio.run(play())
    assert found == ["damaged"]
    assert whole == [BEFORE[0], *WHOLE, *BEFORE[1:]]
    assert text == [BEFORE[0], told(NAMES.get(kind, "node1")), *BEFORE[1:]]


@pytest.mark.parametrize("with_graph", [False, True], ids=["saver", "graph"])
def test_what_a_function_would_have_returned_is_not_known(with_graph):
    """The calls that an application hides stay hidden: one message tells them."""
    agent = abandoned(called)
    target = agent.graph if with_graph else agent.graph.checkpointer
    repair_thread(target, agent.config, min_age=0)
    assert lines(agent.history) == [BEFORE[0], told(), *BEFORE[1:]]


def test_a_repair_is_the_same_as_that_of_a_patched_graph():
    """With the graph, it writes what START would have added."""
    offline = abandoned()
    repair_thread(offline.graph, offline.config, min_age=0)
    online = Agent("node", TURN)
    online.say("pay bob")
    online.say("never mind")
    assert lines(offline.history) == lines(online.history)
    for target in (online.graph, online.graph.checkpointer):
        assert repair_thread(target, online.config, min_age=0).outcome == "healthy"


def test_a_patched_graph_goes_on_after_a_repair():
    """It adds nothing to what the repair told or added."""
    for target in ("saver", "graph"):
        agent = abandoned()
        own = agent.graph if target == "graph" else agent.graph.checkpointer
        repair_thread(own, agent.config, min_age=0)
        repaired = lines(agent.history)
        agent.graph = with_patching(agent.graph)
        agent.say("hello")
        assert lines(agent.history) == [*repaired, "human: hello", "ai: done"]


# --- several, and other damage ------------------------------------------------------------------


@pytest.mark.parametrize("with_graph", [False, True], ids=["saver", "graph"])
def test_several_in_a_row(with_graph):
    """Each turn stands before the message that abandoned it, in one repair."""
    other = calls(("mail", {"to": "eve"}), WIRE, first=3)
    agent = Agent(node, TURN, other)
    for text in ("pay bob", "pay eve", "never mind"):
        agent.say(text)
    target = agent.graph if with_graph else agent.graph.checkpointer
    repair = repair_thread(target, agent.config, min_age=0)
    one = WHOLE if with_graph else [told()]
    two = [told().replace("bob", "eve").replace("c2", "c4")]
    if with_graph:
        two = ["ai: mail, wire", "tool: sent to eve", f"tool: {WAITED.format('c4')}"]
    expected = ["human: pay bob", *one, "human: pay eve", *two, "human: never mind", "ai: done"]
    assert lines(agent.history) == expected
    restored = [c.index for c in repair.patch.changes if c.kind == "restored"]
    assert restored == [1, 2]
    assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"


def test_damage_of_the_graph_above_is_repaired_at_once():
    """A dangling call and an abandoned turn take one repair; the indexes are those of before."""
    agent = abandoned()
    lost = [calls(("look", {}), first=7), HumanMessage("well?")]
    agent.graph.update_state(agent.config, {"messages": lost})
    saver = agent.graph.checkpointer
    assert scanned(saver) == [("damaged", ["abandoned", "dangling"])]
    repair = repair_thread(saver, agent.config, min_age=0)
    unknown = "tool: No result of tool call look with id c7 is known; it may or may not have run."
    expected = [BEFORE[0], told(), *BEFORE[1:], "ai: look", unknown, "human: well?"]
    assert lines(agent.history) == expected
    found = [(c.kind, c.index) for c in repair.patch.changes]
    assert found == [("restored", 1), ("inserted", 3)]


def test_a_second_pause_is_ended_with_the_first_turn():
    """With `on_pause="abandon"` the turn that waits is added at the end; the first one as well."""
    other = calls(("mail", {"to": "eve"}), WIRE, first=3)
    agent = Agent(node, TURN, other)
    agent.say("pay bob")
    agent.say("pay eve")
    saver = agent.graph.checkpointer
    assert repair_thread(saver, agent.config, min_age=0).outcome == "paused"
    repair_thread(agent.graph, agent.config, min_age=0, on_pause="abandon")
    ended = (
        "tool: Tool call wire with id c4 was waiting for human input when the pause was ended; "
        "no answer and no result were recorded."
    )
    expected = [BEFORE[0], *WHOLE, "human: pay eve", "ai: mail, wire", "tool: sent to eve", ended]
    assert lines(agent.history) == expected
    assert agent.graph.get_state(agent.config).next == ()
    agent.say("hello")
    assert lines(agent.history) == [*expected, "human: hello", "ai: done"]
    assert agent.desk.did == {"mail bob": 1, "mail eve": 1}


@pytest.mark.parametrize("with_graph", [False, True], ids=["saver", "graph"])
def test_a_turn_that_failed(with_graph):
    """Nobody has written since: the repair ends the failed run, and adds its turn at the end."""
    agent = Agent(node, calls(MAIL, ("boom", {"text": "x"})))
    with pytest.raises(RuntimeError, match="kaput"):
        agent.say("pay bob")
    saver = agent.graph.checkpointer
    assert scanned(saver) == [("damaged", ["abandoned"])]
    target = agent.graph if with_graph else saver
    repair_thread(target, agent.config, min_age=0)
    failed = (
        "Tool call boom with id c2 failed in its last recorded attempt: RuntimeError('kaput x')"
    )
    text = told(wired=failed).replace('wire({"amount": 5})', 'boom({"text": "x"})')
    whole = ["ai: mail, boom", "tool: sent to bob", f"tool: {failed}"]
    expected = ["human: pay bob", *(whole if with_graph else [text])]
    assert lines(agent.history) == expected
    agent.say("hello")
    assert lines(agent.history) == [*expected, "human: hello", "ai: done"]
    assert agent.desk.did == {"mail bob": 1}


@pytest.mark.slow
def test_a_process_that_was_killed_and_a_message_after_that(tmp_path):
    """What the killed tool did is not known."""
    kill("node", tmp_path / "db")
    agent = Agent(node, saver=tmp_path / "db")
    agent.say("never mind")
    saver = agent.graph.checkpointer
    assert ("damaged", ["abandoned"]) in scanned(saver)
    repair_thread(saver, agent.config, min_age=0)
    unknown = "No result of tool call wire with id c2 is known; it may or may not have run."
    assert lines(agent.history) == ["human: go", told(wired=unknown), *BEFORE[1:]]


def test_two_agents_in_one_superstep():
    """The finished one is lost too, and both are told."""

    def pair(model: Any, tools: Any, saver: Any) -> Any:
        other = StrictModel(script=[calls(("mail", {"to": "eve"}), first=5), AIMessage("mailed")])
        builder = StateGraph(MessagesState).add_node("one", create_agent(model, tools))
        builder.add_node("two", create_agent(other, tools))
        builder.add_edge(START, "one").add_edge(START, "two")
        return builder.compile(checkpointer=saver)

    agent = abandoned(pair)
    before = lines(agent.history)
    repair_thread(agent.graph, agent.config, min_age=0)
    done = ["ai: mail", "tool: sent to eve", "ai: mailed"]
    assert lines(agent.history) == [before[0], *WHOLE, *done, *before[1:]]


# --- what is no abandoned turn ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*GRAPHS, called], ids=lambda kind: kind.__name__)
def test_a_live_pause_a_resumed_and_a_completed_turn_add_nothing(kind):
    """The pause stays, and nothing is damaged before and after its answer."""
    agent = Agent(kind, calls(MAIL), AIMessage("mailed"), calls(MAIL, WIRE, first=3))
    agent.say("mail bob")
    saver = agent.graph.checkpointer
    assert {status for status, _ in scanned(saver)} == {"healthy"}
    agent.say("pay bob")
    assert {status for status, _ in scanned(saver)} == {"paused"}
    assert repair_thread(saver, agent.config, min_age=0).outcome == "paused"
    agent.resume()
    agent.say("thanks")
    assert {status for status, _ in scanned(saver)} == {"healthy"}
    for target in (agent.graph, saver):
        assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"
    assert agent.desk.did == {"mail bob": 2, "wire 5": 1}


def test_another_thread_gets_nothing():
    """A turn is added to its own thread only."""
    agent = abandoned()
    other: Any = {"configurable": {"thread_id": "2"}}
    for text in ("pay bob", "hello"):
        agent.graph.invoke({"messages": [HumanMessage(text)]}, other)
    saver = agent.graph.checkpointer
    assert scanned(saver) == [("damaged", ["abandoned"]), ("healthy", [])]
    assert repair_thread(agent.graph, other, min_age=0).outcome == "healthy"


def test_a_fork_before_a_finished_turn_gets_nothing_of_it():
    """The turn of the other branch is not added to this one."""
    agent = Agent(node, calls(MAIL), AIMessage("mailed"))
    agent.say("pay bob")
    [before] = [s for s in agent.graph.get_state_history(agent.config) if s.next == ("node1",)]
    agent.graph.invoke({"messages": [HumanMessage("other")]}, before.config)
    for target in (agent.graph, agent.graph.checkpointer):
        assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"


def test_a_pause_that_is_answered_on_another_branch():
    """Both branches are healthy: one has the turn, and the other one is not the newest."""
    agent = Agent(node, TURN)
    agent.say("pay bob")
    paused = agent.graph.get_state(agent.config)
    agent.say("never mind")
    [asked] = paused.interrupts
    agent.graph.invoke(Command(resume={asked.id: "yes"}), paused.config)
    assert "tool: wired 5: yes" in lines(agent.history)
    for target in (agent.graph, agent.graph.checkpointer):
        assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"


def test_a_branch_from_before_the_pause_gets_nothing():
    """The input of the other branch is the newest one; it is not in this history."""
    agent = abandoned(node, None, AIMessage("hi"))
    agent = Agent(node, AIMessage("hi"), TURN)
    agent.say("hello")
    first = agent.graph.get_state(agent.config).config
    agent.say("pay bob")
    agent.say("never mind")
    agent.graph.update_state(first, {"messages": [AIMessage("edited")]})
    assert lines(agent.history) == ["human: hello", "ai: hi", "ai: edited"]
    for target in (agent.graph, agent.graph.checkpointer):
        assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"


@pytest.mark.parametrize(
    "edit",
    [
        lambda messages: [RemoveMessage(id=messages[0].id)],
        lambda messages: [RemoveMessage(id=messages[1].id)],
    ],
    ids=["question", "input"],
)
def test_an_edited_history_gets_nothing(edit):
    """The question or the message that abandoned it is gone: its place is not certain."""
    agent = abandoned()
    agent.graph.update_state(agent.config, {"messages": edit(agent.history)})
    for target in (agent.graph, agent.graph.checkpointer):
        assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"


def test_an_earlier_turn_is_not_searched_for():
    """The model has gone on for a whole turn since: a documented limit."""
    agent = abandoned()
    agent.say("hello")
    assert scanned(agent.graph.checkpointer) == [("healthy", [])]
    assert repair_thread(agent.graph, agent.config, min_age=0).outcome == "healthy"


def test_durability_exit_is_not_searched():
    """The input is not stored, so nothing shows what it dropped: a documented limit."""
    agent = Agent(node, TURN)
    for text in ("pay bob", "never mind"):
        agent.say(text, durability="exit")
    assert scanned(agent.graph.checkpointer) == [("healthy", [])]
    assert repair_thread(agent.graph, agent.config, min_age=0).outcome == "healthy"


def test_nothing_comes_between_a_call_and_its_result():
    """A tool that runs an agent over the whole history adds nothing to it."""
    inner = StrictModel(script=[calls(MAIL, WIRE, first=5)])

    def build(model: Any, tools: Any, saver: Any) -> Any:
        sub = with_patching(create_agent(inner, tools))
        graph = loop(model, tools)
        graph.nodes.pop("tools")

        def ask(state: MessagesState) -> Any:
            messages = [*state["messages"], HumanMessage("task")]
            answer = sub.invoke({"messages": messages})["messages"][-1]
            return {"messages": [ToolMessage(answer.text, tool_call_id="c1")]}

        return graph.add_node("tools", ask).compile(checkpointer=saver)

    agent = Agent(build, calls(("mail", {"to": "sub"})))
    agent.say("pay bob")
    with pytest.raises(Exception, match="c1"):
        agent.say("never mind")
    repair_thread(agent.graph, agent.config, min_age=0)
    assert [line.partition(":")[0] for line in lines(agent.history)] == [
        "human",
        "ai",
        "tool",
        "human",
    ]


def test_recover_false_adds_nothing():
    """The checkpoints are not searched."""
    agent = abandoned()
    repair = repair_thread(agent.graph, agent.config, min_age=0, recover=False)
    assert repair.outcome == "healthy"


# --- other state keys ---------------------------------------------------------------------------


class Files(AgentState):
    """A state with a second key."""

    files: Annotated[dict[str, str], operator.or_]


def filing(model: Any, tools: Any, saver: Any) -> Any:
    """An agent that writes files, as a node."""

    @tool
    def file(name: str, runtime: ToolRuntime) -> Command:
        """Write a file."""
        result = ToolMessage(f"Updated {name}", tool_call_id=runtime.tool_call_id)
        return Command(update={"files": {name: "x"}, "messages": [result]})

    agent = create_agent(model, [*tools, file], state_schema=Files)
    return above(agent, state=Files).compile(checkpointer=saver)


def test_other_keys_are_restored_with_the_graph_and_named_without_it():
    """A result never states what the state does not have."""
    for with_graph in (True, False):
        agent = Agent(filing, calls(("file", {"name": "one"})), calls(WIRE, first=2))
        agent.run({"messages": [HumanMessage("pay bob")], "files": {"old": "y"}})
        agent.say("never mind")
        target = agent.graph if with_graph else agent.graph.checkpointer
        repair_thread(target, agent.config, min_age=0)
        state = agent.graph.get_state(agent.config)
        if with_graph:
            assert state.values["files"] == {"old": "y", "one": "x"}
            assert "tool: Updated one" in lines(agent.history)
        else:
            assert state.values["files"] == {"old": "y"}
            first = agent.history[1].text.splitlines()[0]
            assert first == "Its values of these state keys were not kept: files."
        assert state.next == ()


# --- what it costs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "queries"),
    [
        ("create_agent", {"get_tuple": 1, "list": 1}),  # the keys are listed, too
        ("node", {"get_tuple": 1, "list": 2}),
    ],
)
def test_what_a_scan_of_a_healthy_thread_costs(kind, queries):
    """One query; for a thread with subgraphs one more, which reads one checkpoint."""
    saver = Counting()
    agent = Agent(kind, calls(MAIL), saver=saver)
    for text in ("pay bob", "thanks"):
        agent.say(text)
    saver.used.clear()
    assert scanned(saver) == [("healthy", [])]
    assert +saver.used == queries


def test_sqlite_files_are_scanned_from_the_command_line(tmp_path):
    """What a scan of a file sees."""
    with open_saver(str(tmp_path / "db")) as saver:
        abandoned(node, saver)
        assert scanned(saver) == [("damaged", ["abandoned"])]
