"""kill -9 in the middle of a tool batch: what was recorded is neither lost nor done twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch import validate_messages, with_patching
from support import kill_agent
from support.kill_agent import BATCH, CONFIG, FOUR, KINDS, Tools, model_of
from support.paths import ENVIRONMENT
from support.placeholder_texts import FAILED, UNKNOWN, WAITED
from support.transcripts import call_ids_in, logged_lines, results_by_call

pytestmark = pytest.mark.slow

CHILD = Path(kill_agent.__file__)


def kill_at(folder: Path, *argv: str, line: str, after: float) -> None:
    """Run the child until its tools have left that line, and a while more; then kill -9."""
    with subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-W", "ignore", str(CHILD), str(folder), *argv],
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as child:
        deadline = time.monotonic() + 60
        while line not in logged_lines(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert child.poll() is None
        time.sleep(after)
        child.kill()


def recorded_in(saver: SqliteSaver) -> set[str]:
    """The calls with results in the pending writes of a checkpoint."""
    writes = [write for saved in saver.list(CONFIG) for write in saved.pending_writes or ()]
    found = (call_ids_in(value) for _, channel, value in writes if channel == "messages")
    return {call_id for ids in found for call_id in ids}


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize(
    ("kind", "mode", "durability"),
    [
        ("hand_built", "sync", "sync"),
        ("react_v2", "async", "async"),
        ("create_agent", "sync", "async"),
    ],
)
def test_killed_in_a_batch(kind: str, mode: str, durability: str, tmp_path: Path, *, resumes: bool):
    """At a random moment: the thread goes on, and what was recorded is not done again."""
    after = random.uniform(0, 0.3)  # noqa: S311 - no secret; each run kills at other moments
    kill_at(tmp_path, kind, mode, durability, "batch", line="begun", after=after)
    before = Counter(logged_lines(tmp_path))
    with SqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
        recorded = recorded_in(saver)
        assert recorded <= before.keys()
        graph = KINDS[kind](model_of(BATCH), Tools(tmp_path, 0).all(), checkpointer=saver)
        graph = with_patching(graph)
        # Raw: a message that is a pending write alone goes with the next input.
        stored = saver.get_tuple(CONFIG)
        assert stored is not None
        in_state = stored.checkpoint["channel_values"].get("messages", [])
        called = any(m.type == "ai" for m in in_state)
        assert called or not recorded
        graph.invoke(None if resumes else {"messages": [HumanMessage("and?")]}, CONFIG)
        in_state = graph.get_state(CONFIG).values["messages"]
        done = {call_id: (f"did {call_id[1:]}", "real") for _, _, call_id in BATCH}
        if resumes:
            assert results_by_call(in_state) == done
        elif called:
            assert results_by_call(in_state) == {
                call_id: text
                if call_id in recorded
                else (UNKNOWN.format("work", call_id), "unknown")
                for call_id, text in done.items()
            }
            assert Counter(logged_lines(tmp_path)) == before
        assert all(Counter(logged_lines(tmp_path))[call_id] == 1 for call_id in recorded)
        assert validate_messages(in_state) == []
        assert in_state[-1].text == "fine"


@pytest.mark.parametrize("kind", KINDS)
def test_four_siblings_of_a_killed_process(kind: str, tmp_path: Path):
    """Finished, waiting, raised and killed: four different outcomes, read by another process."""
    durability = "sync" if kind == "react_v2" else "async"
    kill_at(tmp_path, kind, "sync", durability, "four", line="raises", after=0.4)
    with SqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
        model = model_of(FOUR)
        graph = with_patching(KINDS[kind](model, Tools(tmp_path, 0).all(), checkpointer=saver))
        graph.invoke({"messages": [HumanMessage("and?")]}, CONFIG)
        assert results_by_call(model.seen[-1]) == {
            "c0": ("did 0", "real"),
            "c1": (WAITED.format("wire", "c1"), "awaiting_input"),
            "c2": (FAILED.format("boom", "c2", "RuntimeError('kaput')"), "failed"),
            "c3": (UNKNOWN.format("hang", "c3"), "unknown"),
        }
        assert graph.get_state(CONFIG).values["messages"][-1].text == "fine"
    assert Counter(logged_lines(tmp_path)) == {"begun": 1, "c0": 1, "raises": 1}
