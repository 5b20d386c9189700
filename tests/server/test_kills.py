"""kill -9 in the middle of a tool batch: what was recorded is neither lost nor done twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver

import kit
from kit import Agent, results_in
from langgraph_patch import validate_messages, with_patching
from support import kill_agent
from support.kill_agent import BATCH, CONFIG, FOUR, KINDS, Tools, model_of
from support.paths import ENVIRONMENT

CHILD = Path(kill_agent.__file__)


def lines(folder: Path) -> list[str]:
    """What the tools did."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def kill_at(folder: Path, *argv: str, line: str, after: float) -> None:
    """Run the child until its tools have left that line, and a while more; then kill -9."""
    with subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-W", "ignore", str(CHILD), str(folder), *argv],
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as child:
        deadline = time.monotonic() + 60
        while line not in lines(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert child.poll() is None
        time.sleep(after)
        child.kill()


@contextmanager
def in_another_process(folder: Path, kind: str, script: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The patched agent of a kind on the database of the child, its model, and the saver."""
    with SqliteSaver.from_conn_string(str(folder / "db")) as saver:
        model = model_of(script)
        graph = KINDS[kind](model, Tools(folder, 0).all(), checkpointer=saver)
        yield with_patching(graph), model, saver


def recorded_in(saver: SqliteSaver) -> set[str]:
    """The calls with results in the pending writes of a checkpoint."""
    writes = [write for saved in saver.list(CONFIG) for write in saved.pending_writes or ()]
    lists = [value for _, channel, value in writes if channel == "messages"]
    return {m.tool_call_id for each in lists for m in each if isinstance(m, ToolMessage)}


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize(
    ("kind", "mode", "durability"),
    [
        ("hand_built", "sync", "sync"),
        ("react_v2", "async", "async"),
        ("create_agent", "sync", "async"),
    ],
)
def test_f34_killed_in_a_batch(kind, mode, durability, resumes, tmp_path):
    """At a random moment: the thread goes on, and what was recorded is not done again."""
    after = random.uniform(0, 0.3)  # noqa: S311 - no secret; each run kills at other moments
    kill_at(tmp_path, kind, mode, durability, "batch", line="begun", after=after)
    before = Counter(lines(tmp_path))
    with in_another_process(tmp_path, kind, BATCH) as (graph, _, saver):
        recorded = recorded_in(saver)
        assert recorded <= before.keys()
        # Raw: a message that is a pending write alone goes with the next input.
        stored = saver.get_tuple(CONFIG).checkpoint["channel_values"].get("messages", [])
        called = any(m.type == "ai" for m in stored)
        assert called or not recorded
        graph.invoke(None if resumes else {"messages": [HumanMessage("and?")]}, CONFIG)
        history = graph.get_state(CONFIG).values["messages"]
    done = {call_id: f"did {call_id[1:]}" for _, _, call_id in BATCH}
    unknown = {
        i: f"No result of tool call work with id {i} is known; it may or may not have run."
        for i in done
    }
    if resumes:
        assert results_in(history) == done
    elif called:
        assert results_in(history) == unknown | {i: done[i] for i in recorded}
        assert Counter(lines(tmp_path)) == before
    assert all(Counter(lines(tmp_path))[call_id] == 1 for call_id in recorded)
    assert validate_messages(history) == []
    assert history[-1].text == "fine"


@pytest.mark.parametrize("kind", KINDS)
def test_f03_four_siblings_of_a_killed_process(kind, tmp_path):
    """Finished, waiting, raised and killed: four different outcomes, read by another process."""
    durability = "sync" if kind == "react_v2" else "async"
    kill_at(tmp_path, kind, "sync", durability, "four", line="raises", after=0.4)
    with in_another_process(tmp_path, kind, FOUR) as (graph, model, _):
        graph.invoke({"messages": [HumanMessage("and?")]}, CONFIG)
        assert results_in(model.seen[-1]) == {
            "c0": "did 0",
            "c1": "Tool call wire with id c1 was waiting for human input when another message "
            "came in; no answer and no result were recorded.",
            "c2": "Tool call boom with id c2 failed in its last recorded attempt: "
            "RuntimeError('kaput')",
            "c3": "No result of tool call hang with id c3 is known; it may or may not have run.",
        }
        assert graph.get_state(CONFIG).values["messages"][-1].text == "fine"
    assert Counter(lines(tmp_path)) == {"begun": 1, "c0": 1, "raises": 1}


def test_a_result_that_record_stored_is_recovered(tmp_path):
    """With `record=True` the result beside the call in which the process died is stored."""
    did = kit.kill("recorded", tmp_path / "t.sqlite")
    agent = Agent("recorded", saver=tmp_path / "t.sqlite")
    agent.say("and now?")
    assert did == {"mail bob": 1}
    assert agent.read["c1"] == "sent to bob"
    assert "may or may not have run" in agent.read["c2"]
