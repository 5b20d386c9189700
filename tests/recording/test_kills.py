"""kill -9 in the middle of a tool batch: what was recorded is neither lost nor done twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import kill_agent
import pytest
from agents import CANCELLED, UNKNOWN
from kill_agent import BATCH, CONFIG, FOUR, KINDS, Tools, model_of
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch import PLACEHOLDER_KEY, validate_messages, with_patching

CHILD = Path(kill_agent.__file__)


def lines_of(folder: Path) -> list[str]:
    """What the tools left on the disk."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def kill_at(folder: Path, *argv: str, line: str, after: float) -> None:
    """Run the child until its tools have left that line, and a while more; then kill -9."""
    with subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-W", "ignore", str(CHILD), str(folder), *argv], stderr=subprocess.DEVNULL
    ) as child:
        deadline = time.monotonic() + 60
        while line not in lines_of(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert child.poll() is None
        time.sleep(after)
        child.kill()


def results_in(value: Any) -> set[str]:
    """The ids of the calls whose results a write holds."""
    if isinstance(value, ToolMessage):
        return {value.tool_call_id}
    if isinstance(value, list):
        return {call_id for part in value for call_id in results_in(part)}
    return results_in(value["recorded"]["result"]) if isinstance(value, dict) else set()


def recorded_in(saver: SqliteSaver) -> set[str]:
    """The calls whose results hang on a checkpoint, read raw."""
    writes = [write for saved in saver.list(CONFIG) for write in saved.pending_writes or ()]
    found = (results_in(v) for _, c, v in writes if c in ("messages", "__return__"))
    return {call_id for ids in found for call_id in ids}


def told(messages: list[BaseMessage]) -> dict[str, tuple[str, str]]:
    """What is told of each call, and how it is meant."""
    return {
        m.tool_call_id: (m.text, m.additional_kwargs.get(PLACEHOLDER_KEY, {}).get("cause", "real"))
        for m in messages
        if isinstance(m, ToolMessage)
    }


def check_kill(folder: Path, kind: str, *, resumes: bool) -> set[str]:
    """The thread goes on, with what was recorded and without doing it again."""
    before = Counter(lines_of(folder))
    with SqliteSaver.from_conn_string(str(folder / "db")) as saver:
        recorded = recorded_in(saver)
        assert recorded <= before.keys()
        model = model_of(BATCH)
        graph = KINDS[kind](model, Tools(folder, 0).all(), checkpointer=saver)
        graph = with_patching(graph)
        # Raw: a message that is a pending write alone goes with the next input.
        stored = saver.get_tuple(CONFIG)
        assert stored is not None
        held = stored.checkpoint["channel_values"].get("messages", [])
        called = any(m.type == "ai" for m in held)
        assert called or not recorded
        value = None if resumes else {"messages": [HumanMessage("and?")]}
        graph.invoke(value, CONFIG)
        held = graph.get_state(CONFIG).values["messages"]
        after = Counter(lines_of(folder))
        if resumes:
            every = {f"c{n}": (f"did {n}", "real") for n in range(len(BATCH))}
            assert told(held) == every
        elif called:
            for call_id, (text, cause) in told(held).items():
                done = call_id in recorded
                assert cause == ("real" if done else "unknown")
                assert not done or text == f"did {call_id[1:]}"
            assert told(held).keys() == {call_id for _, _, call_id in BATCH}
            assert after == before
        assert all(after[call_id] == 1 for call_id in recorded)
        assert validate_messages(held) == []
        assert held[-1].text == "fine"
        graph.invoke({"messages": [HumanMessage("thanks")]}, CONFIG)
        assert graph.get_state(CONFIG).next == ()
    return recorded


def test_killed_in_a_batch(tmp_path, request):
    """At random moments, by threads and in an event loop, with durability sync and async."""
    long = request.config.getoption("--long", default=False)
    rng = random.Random()  # noqa: S311 - no secret; each run kills at other moments
    recorded = []
    for number in range(50 if long else 5):
        folder = tmp_path / str(number)
        folder.mkdir()
        kind = ["recorded", "react_v2", "create_agent"][number % 3]
        mode = ["sync", "async"][number // 2 % 2]
        durability = ["sync", "async"][number % 2]
        kill_at(folder, kind, mode, durability, "batch", line="begun", after=rng.uniform(0, 0.3))
        recorded.append(len(check_kill(folder, kind, resumes=number % 4 in (1, 2))))
    # The batch takes 0.25 s: some of it was recorded somewhere, and not all of it everywhere.
    assert max(recorded) > 0
    assert len(recorded) == (50 if long else 5)


@pytest.mark.parametrize("kind", KINDS)
def test_four_siblings_of_a_killed_process(kind, tmp_path):
    """Finished, waiting, raised and killed: four different truths, read by another process."""
    durability = "sync" if kind == "react_v2" else "async"
    kill_at(tmp_path, kind, "sync", durability, "four", line="raises", after=0.4)
    with SqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
        model = model_of(FOUR)
        graph = with_patching(KINDS[kind](model, Tools(tmp_path, 0).all(), checkpointer=saver))
        graph.invoke({"messages": [HumanMessage("and?")]}, CONFIG)
        assert told(model.seen[-1]) == {
            "c0": ("did 0", "real"),
            "c1": (CANCELLED.format("wire", "c1"), "awaiting_input"),
            "c2": ("Tool call boom with id c2 failed: RuntimeError('kaput')", "failed"),
            "c3": (UNKNOWN.format("hang", "c3"), "unknown"),
        }
        assert graph.get_state(CONFIG).values["messages"][-1].text == "fine"
    assert Counter(lines_of(tmp_path)) == {"begun": 1, "c0": 1, "raises": 1}
