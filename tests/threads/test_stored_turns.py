"""The abandoned turn of an agent that is a node: a scan finds it, and a repair adds it."""

import operator
from typing import Annotated

import pytest
from langchain.agents import AgentState, create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.types import Command
from langgraph_swarm import create_swarm

from kit import Agent, above, calling, calls, loop, send_each
from langgraph_patch import validate_messages, with_patching
from langgraph_patch.threads import repair_thread, scan_threads, undo_repair
from support.databases import rows_of
from support.stored_threads import BOOM, FAILED, MAIL, UNKNOWN, WAITED, WIRE, lines, thread

TURN = calls(MAIL, WIRE)
OTHER = calls(("mail", {"to": "eve"}), WIRE, first=3)
WAITING = WAITED.format("c2")
BEFORE = ["human: pay bob", "human: never mind", "ai: done"]
WHOLE = ["ai: mail, wire", "tool: sent to bob", f"tool: {WAITING}"]


# --- graphs without this package ---------------------------------------------------------------


def node(model, tools, saver):
    """`create_agent` as a node."""
    return above(create_agent(model, tools)).compile(checkpointer=saver)


def two_levels(model, tools, saver):
    """A loop, with a task for each call, as the node of a graph that is a node."""
    inner = loop(model, tools, router=send_each).compile()
    return above(above(inner).compile()).compile(checkpointer=saver)


def swarm(model, tools, saver):
    """A swarm of two."""
    agents = [create_agent(model, tools, name="alice"), create_agent(model, [], name="bob")]
    return create_swarm(agents, default_active_agent="alice").compile(checkpointer=saver)


def called(model, tools, saver):
    """A function that calls an agent, and returns its last message."""
    return above(calling(create_agent(model, tools))).compile(checkpointer=saver)


each_graph = pytest.mark.parametrize("kind", [two_levels, swarm, called])
both_targets = pytest.mark.parametrize("with_graph", [False, True], ids=["saver", "graph"])


def abandoned(kind=node, saver=None, *script, texts=("pay bob", "never mind")):
    """An agent whose user wrote instead of answering; the model has answered that."""
    agent = Agent(kind, *(script or [TURN]), saver=saver)
    for text in texts:
        agent.say(text)
    return agent


def target_of(agent, with_graph):
    """What `repair_thread` takes."""
    return agent.graph if with_graph else agent.graph.checkpointer


def told(name="node1", wired=WAITING, to="bob", wire='wire({"amount": 5})'):
    """The message about a turn."""
    return (
        f"ai: No answer of {name} was recorded. What was recorded of its tool calls:\n"
        f'- mail({{"to": "{to}"}}): sent to {to}\n- {wire}: {wired}'
    )


def check_healthy(agent):
    """Neither a repair with the graph nor one without it finds anything."""
    for target in (agent.graph, agent.graph.checkpointer):
        assert repair_thread(target, agent.config, min_age=0).outcome == "healthy"


def scanned(saver):
    """The status of each history, and the kinds of its defects."""
    return [(r.status, [c.defect for c in r.defects]) for r in scan_threads(saver)]


# --- scanned, repaired, continued, undone --------------------------------------------------------


@both_targets
@each_graph
def test_a_repair_adds_it_an_undo_takes_it_back_and_the_next_turn_reads_it(
    kind, with_graph, path, saver
):
    """Without the graph nobody knows what the node would have returned: one message tells it.

    So it is for a function; a graph would have returned the messages. No tool runs again.
    """
    agent = abandoned(kind, saver)
    before = rows_of(path)
    [report] = [each for each in scan_threads(saver) if each.status != "healthy"]
    [defect] = report.defects
    assert (report.status, report.namespace) == ("damaged", "")
    assert (defect.kind, defect.defect, defect.index) == ("restored", "abandoned", 1)
    assert rows_of(path) == before
    text = told("alice" if kind is swarm else "node1")
    is_whole = with_graph and kind is not called
    expected = [BEFORE[0], *(WHOLE if is_whole else [text]), *BEFORE[1:]]
    repair = repair_thread(target_of(agent, with_graph), agent.config, min_age=0)
    assert lines(report.patch.messages) == [BEFORE[0], text, *BEFORE[1:]]
    assert lines(repair.patch.messages) == lines(agent.history) == expected
    assert lines(repair.patch.before) == BEFORE
    found = [(c.kind, c.defect, c.index) for c in repair.patch.changes]
    inner = [("recovered", "dangling", 1), ("inserted", "dangling", 1)]
    assert found == [("restored", "abandoned", 1), *(inner if is_whole else [])]
    assert scanned(saver) == [("healthy", [])]
    check_healthy(agent)
    assert undo_repair(saver, agent.config) == repair.before
    assert rows_of(path) == before
    unsearched = repair_thread(agent.graph, agent.config, min_age=0, recover=False)
    assert unsearched.outcome == "healthy"
    repair_thread(target_of(agent, with_graph), agent.config, min_age=0)
    agent.graph = with_patching(agent.graph) if with_graph else agent.graph
    agent.say("hello")
    assert lines(agent.model.seen[-1]) == [*expected, "human: hello"]
    assert lines(agent.history) == [*expected, "human: hello", "ai: done"]
    assert validate_messages(agent.history) == []
    assert agent.desk.did == {"mail bob": 1}
    check_healthy(agent)


def test_a_repair_writes_what_a_patched_graph_would_have_added():
    """With the graph, it writes what START would have added."""
    offline = abandoned()
    repair_thread(offline.graph, offline.config, min_age=0)
    online = abandoned(lambda *args: with_patching(node(*args)))
    assert lines(offline.history) == lines(online.history)
    check_healthy(online)


# --- several, and other damage -------------------------------------------------------------------


@both_targets
def test_several_in_a_row(with_graph):
    """Each turn stands before the message that abandoned it, in one repair."""
    agent = abandoned(node, None, TURN, OTHER, texts=("pay bob", "pay eve", "never mind"))
    repair = repair_thread(target_of(agent, with_graph), agent.config, min_age=0)
    one, two = [told()], [told(to="eve", wired=WAITED.format("c4"))]
    if with_graph:
        one = WHOLE
        two = ["ai: mail, wire", "tool: sent to eve", f"tool: {WAITED.format('c4')}"]
    expected = ["human: pay bob", *one, "human: pay eve", *two, "human: never mind", "ai: done"]
    assert lines(agent.history) == expected
    assert [c.index for c in repair.patch.changes if c.kind == "restored"] == [1, 2]
    check_healthy(agent)


def test_damage_of_the_graph_above_is_repaired_at_once():
    """A dangling call and an abandoned turn take one repair; the indexes are those of before."""
    agent = abandoned()
    lost = [calls(("look", {}), first=7), HumanMessage("well?")]
    agent.graph.update_state(agent.config, {"messages": lost})
    saver = agent.graph.checkpointer
    assert scanned(saver) == [("damaged", ["abandoned", "dangling"])]
    repair = repair_thread(saver, agent.config, min_age=0)
    unknown = f"tool: {UNKNOWN.format('look', 'c7')}"
    expected = [BEFORE[0], told(), *BEFORE[1:], "ai: look", unknown, "human: well?"]
    assert lines(agent.history) == expected
    found = [(c.kind, c.index) for c in repair.patch.changes]
    assert found == [("restored", 1), ("inserted", 3)]


@both_targets
def test_a_turn_that_failed(with_graph):
    """Nobody has written since: the repair ends the failed run, and adds its turn at the end."""
    agent = Agent(node, calls(MAIL, BOOM))
    with pytest.raises(RuntimeError, match="kaput"):
        agent.say("pay bob")
    assert scanned(agent.graph.checkpointer) == [("damaged", ["abandoned"])]
    repair_thread(target_of(agent, with_graph), agent.config, min_age=0)
    whole = ["ai: mail, boom", "tool: sent to bob", f"tool: {FAILED}"]
    text = told(wired=FAILED, wire='boom({"text": "x"})')
    expected = ["human: pay bob", *(whole if with_graph else [text])]
    assert lines(agent.history) == expected
    agent.say("hello")
    assert lines(agent.history) == [*expected, "human: hello", "ai: done"]
    assert agent.desk.did == {"mail bob": 1}


# --- what is no abandoned turn -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [two_levels, called])
@pytest.mark.needs(langgraph="1.2")  # which runs no finished call again
def test_a_live_pause_a_resumed_and_a_completed_turn_add_nothing(kind):
    """The pause stays, and nothing is damaged before and after its answer."""
    agent = Agent(kind, calls(MAIL), AIMessage("mailed"), calls(MAIL, WIRE, first=3))
    saver = agent.graph.checkpointer
    for act, status in (
        (lambda: agent.say("mail bob"), "healthy"),
        (lambda: agent.say("pay bob"), "paused"),
        (agent.resume, "healthy"),
        (lambda: agent.say("thanks"), "healthy"),
    ):
        act()
        assert {each for each, _ in scanned(saver)} == {status}
        assert repair_thread(saver, agent.config, min_age=0).outcome == status
    check_healthy(agent)
    assert agent.desk.did == {"mail bob": 2, "wire 5": 1}


def other_thread(agent):
    """A healthy thread beside the abandoned one."""
    agent.config = thread("2")
    agent.say("hello")


def other_branch(agent):
    """The other branch has the turn, and is the newest one."""
    [paused] = [each for each in agent.graph.get_state_history(agent.config) if each.interrupts]
    answer = Command(resume={paused.interrupts[0].id: "yes"})
    agent.graph.invoke(answer, paused.config)
    assert "tool: wired 5: yes" in lines(agent.history)


def edited(agent):
    """The question is gone: the place of its turn is not certain."""
    removed = RemoveMessage(id=agent.history[0].id)
    agent.graph.update_state(agent.config, {"messages": [removed]})


def earlier_turn(agent):
    """The model has gone on for a whole turn since: a documented limit."""
    agent.say("hello")


@pytest.mark.parametrize("act", [other_thread, other_branch, edited, earlier_turn])
def test_a_history_gets_nothing_that_is_not_certainly_its_own(act):
    """Other threads, other branches, edited histories, and a documented limit."""
    agent = abandoned()
    act(agent)
    check_healthy(agent)
    found = {r.thread_id: r.status for r in scan_threads(agent.graph.checkpointer)}
    assert found.pop(agent.config["configurable"]["thread_id"]) == "healthy"
    assert set(found.values()) <= {"damaged"}  # the other thread


def test_an_input_that_is_not_stored_adds_nothing():
    """With `durability="exit"` nothing shows what the input dropped: a documented limit."""
    agent = Agent(node, TURN)
    for text in ("pay bob", "never mind"):
        agent.say(text, durability="exit")
    check_healthy(agent)


# --- other state keys ----------------------------------------------------------------------------


class Files(AgentState):
    """A state with a second key."""

    files: Annotated[dict[str, str], operator.or_]


def filing(model, tools, saver):
    """An agent that writes files, as a node."""

    @tool
    def file(name: str, runtime: ToolRuntime) -> Command:
        """Write a file."""
        result = ToolMessage(f"Updated {name}", tool_call_id=runtime.tool_call_id)
        return Command(update={"files": {name: "x"}, "messages": [result]})

    agent = create_agent(model, [*tools, file], state_schema=Files)
    return above(agent, state=Files).compile(checkpointer=saver)


@pytest.mark.parametrize("with_graph", [False, True])
def test_other_keys_are_named(with_graph):
    """A result never states what the state does not have."""
    agent = Agent(filing, calls(("file", {"name": "one"})), calls(WIRE, first=2))
    agent.run({"messages": [HumanMessage("pay bob")], "files": {"old": "y"}})
    agent.say("never mind")
    repair_thread(target_of(agent, with_graph), agent.config, min_age=0)
    assert agent.graph.get_state(agent.config).values["files"] == {"old": "y"}
    not_kept = "ai: Its values of these state keys were not kept: files."
    named = [line.partition("\n")[0] for line in lines(agent.history)]
    assert not_kept in named
    assert "tool: Updated one" not in named


def test_every_form_of_an_input():
    """A stored pair is a list; LangGraph makes a message of each of these."""
    pair = {"role": "user", "content": "no"}
    for text in ([("human", "no")], ("human", "no"), ["no"], "no", [pair], pair):
        agent = Agent(node, TURN)
        agent.say("pay bob")
        agent.run({"messages": text})
        (report,) = scan_threads(agent.graph.checkpointer)
        assert report.status == "damaged", text
