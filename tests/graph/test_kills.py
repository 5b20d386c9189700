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
from support import kill_agent, kill_loop
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
    found = (call_ids_in(v) for _, c, v in writes if c in ("messages", "__return__"))
    return {call_id for ids in found for call_id in ids}


def check_kill(folder: Path, kind: str, *, resumes: bool) -> set[str]:
    """The thread goes on, with what was recorded and without doing it again."""
    before = Counter(logged_lines(folder))
    with SqliteSaver.from_conn_string(str(folder / "db")) as saver:
        recorded = recorded_in(saver)
        assert recorded <= before.keys()
        model = model_of(BATCH)
        graph = KINDS[kind](model, Tools(folder, 0).all(), checkpointer=saver)
        graph = with_patching(graph)
        # Raw: a message that is a pending write alone goes with the next input.
        stored = saver.get_tuple(CONFIG)
        assert stored is not None
        in_state = stored.checkpoint["channel_values"].get("messages", [])
        called = any(m.type == "ai" for m in in_state)
        assert called or not recorded
        value = None if resumes else {"messages": [HumanMessage("and?")]}
        graph.invoke(value, CONFIG)
        in_state = graph.get_state(CONFIG).values["messages"]
        after = Counter(logged_lines(folder))
        if resumes:
            every = {f"c{n}": (f"did {n}", "real") for n in range(len(BATCH))}
            assert results_by_call(in_state) == every
        elif called:
            for call_id, (text, cause) in results_by_call(in_state).items():
                done = call_id in recorded
                assert cause == ("real" if done else "unknown")
                assert not done or text == f"did {call_id[1:]}"
            assert results_by_call(in_state).keys() == {call_id for _, _, call_id in BATCH}
            assert after == before
        assert all(after[call_id] == 1 for call_id in recorded)
        assert validate_messages(in_state) == []
        assert in_state[-1].text == "fine"
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


# --- a loop of recorded tools ----------------------------------------------------------------


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_loop_of_recorded_tools_survives_a_kill(tmp_path: Path, mode: str, *, resumes: bool):
    """A SIGKILL in the third of four calls: the finished two do not run again.

    A new message reads their results, that the third may have run, and that the fourth was not
    run. A restart runs the third and the fourth.
    """
    with subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-W", "ignore", str(kill_loop.__file__), str(tmp_path), mode],
        env=ENVIRONMENT,
    ) as child:
        log, deadline = tmp_path / "log", time.monotonic() + 60
        while not (log.exists() and "c2" in log.read_text()) and time.monotonic() < deadline:
            assert child.poll() is None
            time.sleep(0.01)
        child.kill()
    value = None if resumes else "and?"
    history = kill_loop.run(tmp_path, mode, value, hangs=False)
    told = {m.tool_call_id: m.content for m in history if m.type == "tool"}
    assert (told["c0"], told["c1"]) == ("did 0", "did 1")
    if resumes:
        assert (told["c2"], told["c3"]) == ("did 2", "did 3")
        assert log.read_text().split() == ["c0", "c1", "c2", "c2", "c3"]
    else:
        assert "may or may not have run" in told["c2"]
        assert told["c3"] == "Tool call work with id c3 was not run."
        assert log.read_text().split() == ["c0", "c1", "c2"]
        assert [m.type for m in history] == ["human", "ai", *["tool"] * 4, "human", "ai"]
