"""Before older checkpoints are deleted, a repair recovers what only they hold.

The thread of these tests looks valid. Its placeholder is final: two searches found that the call
waits for a human. The human had answered by interrupt id in another process, and the tool ended
after the second search. So its result is a pending write of an old checkpoint.
"""

import json
from contextlib import asynccontextmanager, contextmanager

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_patch import with_patching
from langgraph_patch.threads import (
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)
from support.agents import REACT_V2, thread
from support.databases import POSTGRES, execute, open_async_saver, open_saver
from support.paused_agents import paused_agent
from support.placeholder_texts import WAITED
from support.running import run_in_worker
from support.stored_threads import stored_messages
from support.transcripts import statements

on_each_saver = pytest.mark.parametrize("path", ["sqlite", "memory", POSTGRES], indirect=True)
WIRED = ("c2", "wired after all", "real")
WAITING = ("c2", WAITED.format("wire_money", "c2"), "awaiting_input")


@pytest.fixture
def path(request, tmp_path):
    """A SQLite file, the URI of an empty PostgreSQL database, or None for a saver in memory."""
    if request.param == "memory":
        return None
    if request.param == "postgres":
        return request.getfixturevalue("postgres_path")
    return str(tmp_path / "threads.sqlite")


@contextmanager
def opened(path):
    """A checkpointer."""
    if path is None:
        yield InMemorySaver()
        return
    with open_saver(path) as saver:
        yield saver


@asynccontextmanager
async def aopened(path):
    """An asynchronous checkpointer."""
    if path is None:
        yield InMemorySaver()
        return
    async with open_async_saver(path) as saver:
        yield saver


async def settled_agent(saver, *, asynchronous, late=True):
    """A thread with a final placeholder and, with `late`, a result that came after it."""
    answers = [AIMessage(text) for text in ("fine", "yes?", "anything else?", "bye")]
    bench = await paused_agent(REACT_V2, *answers, saver=saver, asynchronous=asynchronous)
    paused = await saver.aget_tuple(thread()) if asynchronous else saver.get_tuple(thread())
    graph = with_patching(bench.graph)
    for text in ("never mind", "hello?", "well"):
        await run_in_worker(graph, text, asynchronous=asynchronous)
    if not late:
        return bench, graph
    (task,) = {task for task, channel, _ in paused.pending_writes if channel == INTERRUPT}
    result = ToolMessage("wired after all", tool_call_id="c2", name="wire_money", id="late")
    write = (paused.config, [("messages", [result])], task)
    await saver.aput_writes(*write) if asynchronous else saver.put_writes(*write)
    return bench, graph


def keep_latest(path, saver):
    """Delete all checkpoints but the newest, as a policy for old checkpoints does."""
    if path is None:
        (newest, *older) = sorted(saver.storage["1"][""], reverse=True)
        for checkpoint_id in older:
            del saver.storage["1"][""][checkpoint_id]
            saver.writes.pop(("1", "", checkpoint_id), None)
        assert newest
        return
    writes = "checkpoint_writes" if path.startswith("postgresql") else "writes"
    newest = "(SELECT max(checkpoint_id) FROM checkpoints)"
    for table in (writes, "checkpoints"):
        execute(path, f"DELETE FROM {table} WHERE checkpoint_id <> {newest}")  # noqa: S608 - ours


def read_of(bench):
    """What the model was last shown of the second call."""
    return next(line for line in statements(bench.model.seen[-1]) if line[0] == "c2")


@on_each_saver
async def test_a_result_that_only_an_old_checkpoint_holds(path):
    """The scan and the dry run show it, the repair recovers it, and the pruned thread keeps it."""
    with opened(path) as saver:
        bench, graph = await settled_agent(saver, asynchronous=False)
        placeholder = stored_messages(bench.graph)[3]

        (report,) = scan_threads(saver)
        assert str(report) == "'1': damaged - recovered 'wire_money' 'c2'"
        planned = repair_thread(bench.graph, thread(), min_age=0, dry_run=True)
        assert str(planned) == "'1': planned - recovered 'wire_money' 'c2'"
        assert stored_messages(bench.graph)[3] == placeholder

        repair_thread(bench.graph, thread(), min_age=0)
        undo_repair(bench.graph, thread())
        assert stored_messages(bench.graph)[3] == placeholder
        done = repair_thread(bench.graph, thread(), min_age=0)
        assert (done.outcome, str(done.patch)) == ("repaired", "recovered 'wire_money' 'c2'")
        assert repair_thread(bench.graph, thread(), min_age=0).outcome == "healthy"

        keep_latest(path, saver)
        assert len(list(saver.list(thread()))) == 1
        await run_in_worker(graph, "and now?", asynchronous=False)
        assert read_of(bench) == WIRED


@on_each_saver
async def test_a_result_that_only_an_old_checkpoint_holds_asynchronously(path):
    """The asynchronous forms do the same."""
    async with aopened(path) as saver:
        bench, graph = await settled_agent(saver, asynchronous=True)
        reports = [report async for report in ascan_threads(saver)]
        assert [report.status for report in reports] == ["damaged"]
        how = {"min_age": 0}
        planned = await arepair_thread(bench.graph, thread(), **how, dry_run=True)
        assert str(planned) == "'1': planned - recovered 'wire_money' 'c2'"
        await arepair_thread(bench.graph, thread(), **how)
        await aundo_repair(bench.graph, thread())
        assert (await arepair_thread(bench.graph, thread(), **how)).outcome == "repaired"
        keep_latest(path, saver)
        assert len([saved async for saved in saver.alist(thread())]) == 1
        await run_in_worker(graph, "and now?", asynchronous=True)
        assert read_of(bench) == WIRED


@pytest.mark.parametrize("path", ["sqlite"], indirect=True)
async def test_without_a_repair_the_result_is_lost(path):
    """After the pruning only the placeholder is left."""
    with opened(path) as saver:
        bench, graph = await settled_agent(saver, asynchronous=False)
        keep_latest(path, saver)
        assert repair_thread(bench.graph, thread(), min_age=0).outcome == "healthy"
        await run_in_worker(graph, "and now?", asynchronous=False)
        assert read_of(bench) == WAITING


@pytest.mark.parametrize("path", ["sqlite"], indirect=True)
async def test_a_final_placeholder_stays_if_nothing_more_was_recorded(path):
    """A second search finds what the first one found: the thread is healthy, nothing is written."""
    with opened(path) as saver:
        bench, _ = await settled_agent(saver, asynchronous=False, late=False)
        before = saver.get_tuple(thread()).checkpoint["id"]
        assert [report.status for report in scan_threads(saver)] == ["healthy"]
        assert repair_thread(bench.graph, thread(), min_age=0).outcome == "healthy"
        assert saver.get_tuple(thread()).checkpoint["id"] == before


@pytest.mark.parametrize("path", ["sqlite"], indirect=True)
@pytest.mark.needs(langgraph_checkpoint="4.0.1")
async def test_the_command_line_does_the_same(path, cli, graph_file):
    """The dry run shows it, and `--apply` writes it."""
    with opened(path) as saver:
        await settled_agent(saver, asynchronous=False)
    how = ("repair", path, "--all", "--graph", graph_file, "--min-age", 0)
    code, out, err = cli(*how)
    assert (code, "recovers result of " in out, "1 planned" in err) == (1, True, True)
    code, out, _ = cli(*how, "--apply", "--yes", "--json")
    assert code == 0
    last = json.loads(out.splitlines()[-1])
    assert (last["outcome"], last["changes"][0]["kind"]) == ("repaired", "recovered")
    with opened(path) as saver:
        assert [report.status for report in scan_threads(saver)] == ["healthy"]
