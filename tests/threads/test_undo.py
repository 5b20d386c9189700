"""The repair of a stored thread is taken back, and nothing else ever is."""

import asyncio

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import (
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)
from langgraph_patch.threads.keys import Key, delete_checkpoint
from support.databases import rows_of
from support.stored_threads import Foreign, lines, results, scanned, stored, thread

NOT_REPAIRED = "Thread '1' has no repair to undo: no repair wrote its newest checkpoint"


def test_c4_only_what_has_the_mark_of_a_repair_is_deleted(path, saver):
    """Before a repair, after its undo, for another checkpoint id, and for a thread that is gone."""
    stored("abandoned", saver=saver)
    before = rows_of(path)
    with pytest.raises(ThreadError, match=NOT_REPAIRED):
        undo_repair(saver, thread())
    repair = repair_thread(saver, thread(), min_age=0)
    other = f"its newest checkpoint is {repair.after}, not {repair.before}"
    with pytest.raises(ThreadError, match=other):
        undo_repair(saver, thread(checkpoint_id=repair.before))
    assert undo_repair(saver, thread(checkpoint_id=repair.after)) == repair.before
    with pytest.raises(ThreadError, match=NOT_REPAIRED):
        undo_repair(saver, thread())
    assert rows_of(path) == before
    with pytest.raises(ThreadError, match=r"There is no thread '2'\."):
        undo_repair(saver, thread("2"))


def test_a_thread_that_has_moved_on_keeps_its_repair(path, saver):
    """A message after the repair is worth more than the undo; so are pending writes behind it."""
    made = stored("abandoned", saver=saver)
    repair_thread(saver, thread(), min_age=0)
    saver.put_writes(saver.get_tuple(thread()).config, [("messages", [])], "task")
    before = rows_of(path)
    with pytest.raises(ThreadError, match="it has moved on from checkpoint"):
        undo_repair(saver, thread())
    assert rows_of(path) == before
    made.say("next")
    with pytest.raises(ThreadError, match=NOT_REPAIRED):
        undo_repair(saver, thread())
    assert lines(made.history)[-2:] == ["human: next", "ai: done"]


def test_what_was_repaired_is_listed(saver):
    """By LangGraph's own filter for all times, and by a scan as long as nothing follows."""
    made = [stored("abandoned", saver=saver, thread_id=name) for name in "123"]
    done = {name: repair_thread(saver, thread(name), min_age=0).after for name in "13"}
    assert [r.thread_id for r in scan_threads(saver) if r.repaired] == ["1", "3"]
    made[0].say("next")
    assert [r.thread_id for r in scan_threads(saver) if r.repaired] == ["3"]
    marked = saver.list(None, filter={"langgraph_patch": "repair"})
    assert done == {s.config["configurable"]["thread_id"]: s.checkpoint["id"] for s in marked}


@pytest.mark.parametrize("is_memory", [True, False])
def test_only_the_newest_checkpoint_is_deleted(is_memory, saver):
    """Nothing is deleted if the thread has moved on, or is gone."""
    own = InMemorySaver() if is_memory else saver
    stored("healthy", saver=own)
    ids = [saved.checkpoint["id"] for saved in own.list(thread())]
    for namespace, name, left in (("", ids[1], ids), ("x", ids[0], ids), ("", ids[0], ids[1:])):
        is_done = run_sync(delete_checkpoint(own, Key("1", namespace), name))
        assert is_done == (left != ids)
        assert [saved.checkpoint["id"] for saved in own.list(thread())] == left
    own.delete_thread("1")
    assert not run_sync(delete_checkpoint(own, Key("1", ""), ids[1]))
    assert not is_memory or "1" not in own.storage


def test_a_checkpointer_that_cannot_delete_one_checkpoint_names_the_alternative():
    """The repair stays, and the error says how to continue from the checkpoint before."""
    saver = Foreign()
    stored("abandoned", saver=saver)
    repair_thread(saver, thread(), min_age=0)
    with pytest.raises(ThreadError, match=r"Foreign cannot delete .* thread '1' .* checkpoint_id"):
        undo_repair(saver, thread())
    assert scanned(saver, thread_ids=["1"]) == [("1", "healthy")]


# --- the asynchronous forms ------------------------------------------------------------------


@pytest.mark.needs(langgraph="1.2")
async def test_the_asynchronous_functions_do_the_same(path, saver):
    """Scan, repair, undo over an asynchronous checkpointer; a lookup may be asynchronous too."""

    async def look_up(call):
        return f"{call.tool_call_id} paid"

    made = stored("abandoned", "delta", saver)
    [report] = [r.to_dict() | {"age": 0} for r in scan_threads(saver)]
    before = rows_of(path)
    async with AsyncSqliteSaver.from_conn_string(path) as own:
        graph = made.graph.copy({"checkpointer": own})
        assert [r.to_dict() | {"age": 0} async for r in ascan_threads(own)] == [report]
        repair = await arepair_thread(graph, thread(), min_age=0, reconcile={"wire": look_up})
        assert results(repair.patch.messages) == ["sent to bob", "c2 paid"]
        assert await aundo_repair(graph, thread()) == repair.before
        assert rows_of(path) == before
        assert (await arepair_thread(graph, thread(), min_age=0)).after == repair.after
        await graph.ainvoke({"messages": [("human", "next")]}, thread())
        with pytest.raises(ThreadError, match=NOT_REPAIRED):
            await aundo_repair(graph, thread())


async def test_the_wrong_form_names_the_right_one(path, saver):
    """A checkpointer that is used in an event loop has no other half, and the other way round."""
    stored("abandoned", saver=saver)
    async with AsyncSqliteSaver.from_conn_string(path) as own:
        for act in (repair_thread, undo_repair):
            with pytest.raises(OptionError, match="await arepair_thread and aundo"):
                act(own, thread())
        repair = await arepair_thread(own, thread(), min_age=0)

        def undo():
            with pytest.raises(OptionError, match="AsyncSqliteSaver is asynchronous: call"):
                undo_repair(own, thread())

        await asyncio.to_thread(undo)  # in another thread it can read, but not delete
        with pytest.raises(OptionError, match="AsyncSqliteSaver is asynchronous: call scan"):
            list(scan_threads(own))
    for act in (arepair_thread, aundo_repair):
        with pytest.raises(OptionError, match="SqliteSaver has only the other form: call repair_t"):
            await act(saver, thread())
    with pytest.raises(OptionError, match="SqliteSaver is synchronous: call scan_threads"):
        [report async for report in ascan_threads(saver)]
    assert saver.get_tuple(thread()).checkpoint["id"] == repair.after
