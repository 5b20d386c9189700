"""deepagents' `create_deep_agent`: it repairs by itself, so the record must come before that."""

from __future__ import annotations

from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware as OtherMiddleware
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START
from langgraph.types import Command

from kit import Agent, StrictModel, calls, lines, patched
from langgraph_patch import validate_messages
from langgraph_patch.threads import repair_thread, scan_threads
from support.placeholder_texts import DEEPAGENTS_INCOMPLETE, UNKNOWN, WAITED

BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
SENT = {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}
THEIRS = {c: DEEPAGENTS_INCOMPLETE.format(n, c) for c, n in (("c1", "mail"), ("c2", "wire"))}


def deep(model: Any, tools: Any, saver: Any) -> Any:
    """A deep agent."""
    return create_deep_agent(model, tools, checkpointer=saver)


def with_their_middleware(model: Any, tools: Any, saver: Any) -> Any:
    """`create_agent` with deepagents' repair."""
    return create_agent(model, tools, middleware=[OtherMiddleware()], checkpointer=saver)


@pytest.mark.parametrize(
    ("build", "value", "asynchronous"),
    [
        (deep, {"files": {}}, False),
        (deep, {"messages": [HumanMessage("never mind")]}, True),
        (with_their_middleware, {"messages": [HumanMessage("never mind")]}, False),
    ],
)
def test_the_record_wins_over_the_text_of_deepagents(build: Any, value: Any, *, asynchronous: bool):
    """Bare, the sent mail is denied; patched, the model reads it, also without a message."""
    bare = Agent(build, BOTH, asynchronous=asynchronous)
    bare.say("go")
    bare.run(value)
    assert bare.results == THEIRS
    it = patched(Agent(build, BOTH, asynchronous=asynchronous))
    it.say("go")
    it.run(value)
    assert it.results["c1"] == "sent to bob"
    assert "waiting for human input" in it.results["c2"]
    assert it.desk.did == {"mail bob": 1}
    it.say("hello")
    assert validate_messages(it.history) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_repair_of_deepagents_is_replaced(*, asynchronous: bool):
    """The agent replaced the mail's result; with `replace_foreign` the result is recovered."""
    it = Agent(deep, BOTH, asynchronous=asynchronous)
    it.say("go")
    it.say("never mind")
    patched(it, replace_foreign=True).say("hello?")
    assert it.read == it.results == SENT


@pytest.mark.parametrize("value", [None, Command(goto="model")])
def test_a_run_that_start_does_not_see(value: Any):
    """A damaged thread is repaired by the model node."""
    it = Agent(deep)
    damage = [HumanMessage("go"), BOTH, HumanMessage("never mind")]
    entry = "PatchToolCallsMiddleware.before_agent" if value is None else END
    it.graph.update_state(it.config, {"messages": damage}, as_node=START)
    it.graph.update_state(it.config, None, as_node=entry)
    patched(it, recover=False).run(value)
    texts = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]
    assert lines(it.history)[2:4] == texts
    assert lines(it.history)[-1] == "ai: done"


def test_the_answer_reaches_the_tool_that_waits():
    """A resume of a patched deep agent is that of the bare one."""
    it = patched(Agent(deep, BOTH))
    it.say("go")
    it.resume()
    assert it.results == {"c1": "sent to bob", "c2": "wired 5: yes"}
    assert it.desk.did == {"mail bob": 1, "wire 5": 1}


def test_f16_f17_delta_state(tmp_path: Any):
    """A stored deep agent is repaired without its checkpointer, and nothing is erased."""
    it = Agent(deep, BOTH, saver=tmp_path / "db")
    it.say("go")
    graph = deep(StrictModel(), it.desk.tools(), None).copy({"checkpointer": it.graph.checkpointer})
    repaired = repair_thread(graph, it.config, min_age=0, on_pause="abandon")
    assert repaired.outcome == "repaired"
    assert lines(it.history)[:3] == ["human: go", "ai c1 c2: ", "tool c1: sent to bob"]
    assert [report.status for report in scan_threads(it.graph.checkpointer)] == ["healthy"]
    it.graph.checkpointer.conn.close()
