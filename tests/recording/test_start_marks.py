"""Start marks: which calls of a superstep were started, and how each start ended."""

import asyncio

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, RetryPolicy

from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.records import (
    MARK,
    STARTED,
    hash_of_call,
    hash_request,
    is_recorded_superstep,
    start_marks_in,
)
from support.recorded_agents import (
    GO,
    THREAD,
    WITH_SEND,
    TwoHistories,
    World,
    ask,
    plain_loop,
    recorded,
    results,
)

PAIR = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))


def marked(checkpoints):
    """The checkpoint with start marks."""
    (found,) = [c for c in checkpoints if any(w[1] == STARTED for w in c.pending_writes)]
    return found


def ends(saved, call_id, message_id="ai1"):
    """How each start of a call ended, in the order of time."""
    return [mark.ended for mark in start_marks_in(saved, message_id, call_id)]


@pytest.mark.parametrize("kind", ["loop", *WITH_SEND])
def test_each_start_has_a_mark_and_an_end(runs, world, kind):
    """A result and an interrupt; a `Send`'s result is in the writes of its task."""
    make = {"loop": plain_loop, **WITH_SEND}[kind]

    def scenario(saver):
        yield make(world, saver, PAIR), "invoke", GO, THREAD
        return marked((yield saver, "list", THREAD))

    saved = runs(scenario)
    assert is_recorded_superstep(saved)
    assert is_recorded_superstep(saved, "tools")
    assert not is_recorded_superstep(saved, "other")
    (mail,), (wire,) = (start_marks_in(saved, "ai1", c) for c in ("c1", "c2"))
    assert (mail.name, mail.node) == ("mail", "tools")
    assert mail.request_hash == hash_of_call(PAIR.tool_calls, 0)
    assert (mail.ended, wire.ended) == ("result" if kind == "loop" else None, "interrupt")
    channels = lambda task: {w[1] for w in saved.pending_writes if w[0] == task}
    assert channels(mail.task_id) & {"messages", "__return__"}
    assert "__interrupt__" in channels(wire.task_id)


@pytest.mark.parametrize("kind", ["loop", *WITH_SEND])
def test_a_call_that_raised_has_an_error(runs, world, kind):
    """The error itself is in the writes of the task."""
    world.fails = 1
    make = {"loop": plain_loop, **WITH_SEND}[kind]

    def scenario(saver):
        yield make(world, saver, ask(("boom", "mia", "c3"))), "invoke", GO, THREAD
        return marked((yield saver, "list", THREAD))

    saved = runs(scenario)
    (mark,) = start_marks_in(saved, "ai1", "c3")
    assert mark.ended == "error"
    assert "__error__" in {w[1] for w in saved.pending_writes if w[0] == mark.task_id}


@pytest.mark.parametrize("kind", ["loop", *WITH_SEND])
def test_a_resume_marks_the_next_start(runs, world, kind):
    """First the interrupt, then the start that finished; the finished sibling has one start."""
    make = {"loop": plain_loop, **WITH_SEND}[kind]

    def scenario(saver):
        app = make(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        done = yield app, "invoke", Command(resume="yes"), THREAD
        return done, marked((yield saver, "list", THREAD))

    done, saved = runs(scenario)
    assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    finished = "result" if kind == "loop" else None
    assert ends(saved, "c1") == [finished]
    assert ends(saved, "c2") == ["interrupt", finished]
    assert world.did == {"mail bob": 1, "wire eve": 1}


def test_a_call_that_asks_twice_has_a_mark_for_each_start(runs, world):
    """Savers ignore a second write under one task id, so each mark has an id of its own."""

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        yield app, "invoke", None, THREAD
        yield app, "invoke", None, THREAD
        return marked((yield saver, "list", THREAD))

    saved = runs(scenario)
    assert ends(saved, "c2") == ["interrupt"] * 3
    starts = [mark.started for mark in start_marks_in(saved, "ai1", "c2")]
    assert starts == sorted(set(starts))


@pytest.mark.needs(langgraph="1.1.3")
def test_a_retry_marks_each_attempt(runs_mode, world):
    """The attempt that failed has an error, the next one a result."""
    world.fails = 1
    saver = InMemorySaver()
    builder = plain_loop(world, None, ask(("boom", "x", "c1"))).builder
    retry = RetryPolicy(initial_interval=0.0, jitter=False, retry_on=Exception)
    builder.nodes["tools"].retry_policy = retry
    app = builder.compile(checkpointer=saver)
    app.invoke(GO, THREAD) if runs_mode == "sync" else asyncio.run(app.ainvoke(GO, THREAD))
    marks = start_marks_in(marked(saver.list(THREAD)), "ai1", "c1")
    assert [(m.node_attempt, m.ended) for m in marks] == [(1, "error"), (2, "result")]


@pytest.mark.parametrize("kind", ["loop", *WITH_SEND])
def test_a_cancelled_call_has_no_end_and_its_task_may_have_a_cancellation(kind):
    """A start mark alone: the tool may have worked."""
    began = asyncio.Event()
    world, saver = World(), InMemorySaver()

    async def slow(to: str) -> str:
        """Take a while."""
        began.set()
        await asyncio.sleep(30)
        return to

    world.tools = lambda: [slow]
    make = {"loop": plain_loop, **WITH_SEND}[kind]
    app = make(world, saver, ask(("slow", "x", "c1")))

    async def cancel():
        running = asyncio.create_task(app.ainvoke(GO, THREAD))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    saved = marked(saver.list(THREAD))
    assert is_recorded_superstep(saved)
    assert ends(saved, "c1") == [None]


@pytest.mark.parametrize("kind", ["loop", *WITH_SEND])
def test_the_mark_is_stored_before_the_tool_starts(runs_mode, kind):
    """The tool itself sees its mark in the checkpointer."""
    world, saver, seen = World(), InMemorySaver(), []

    def look(to: str) -> str:
        """Look for the mark."""
        seen.append([m.ended for m in start_marks_in(saver.get_tuple(THREAD), "ai1", "c1")])
        return to

    world.tools = lambda: [look]
    make = {"loop": plain_loop, **WITH_SEND}[kind]
    app = make(world, saver, ask(("look", "x", "c1")))
    # With durability "async", the checkpoint itself may be written after the mark.
    if runs_mode == "sync":
        app.invoke(GO, THREAD, durability="sync")
    else:
        asyncio.run(app.ainvoke(GO, THREAD, durability="sync"))
    assert seen == [[None]]


@pytest.mark.parametrize("kind", ["loop", *WITH_SEND])
def test_durability_exit_writes_no_start_mark(runs_mode, world, kind):
    """The checkpoint does not exist yet; such a superstep proves nothing about a start."""
    saver = InMemorySaver()
    app = {"loop": plain_loop, **WITH_SEND}[kind](world, saver, PAIR)
    if runs_mode == "sync":
        app.invoke(GO, THREAD, durability="exit")
    else:
        asyncio.run(app.ainvoke(GO, THREAD, durability="exit"))
    (saved,) = saver.list(THREAD)
    assert {w[1] for w in saved.pending_writes} >= {MARK}
    assert STARTED not in {w[1] for w in saved.pending_writes}
    assert not is_recorded_superstep(saved)
    app.invoke(None, THREAD)
    assert not is_recorded_superstep(saver.get_tuple(THREAD)), "an earlier start had no mark"


@pytest.mark.parametrize("kind", ["loop", *WITH_SEND])
def test_a_tool_is_not_started_without_its_mark(runs_mode, world, kind):
    """Without the mark, the call would later be reported as not started."""

    class Refusing(InMemorySaver):
        def put_writes(self, config, writes, task_id, task_path=""):
            if writes[0][0] == STARTED:
                msg = "disk full"
                raise OSError(msg)
            super().put_writes(config, writes, task_id, task_path)

    app = {"loop": plain_loop, **WITH_SEND}[kind](world, Refusing(), PAIR)
    with pytest.raises(RecordingError, match=r"was not run: .*disk full"):
        app.invoke(GO, THREAD) if runs_mode == "sync" else asyncio.run(app.ainvoke(GO, THREAD))
    assert world.did == {}


def test_marks_do_not_change_what_langgraph_reads(runs, world):
    """A paused and a finished thread have the tasks, the values and the streams of always."""

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        paused = yield app, "get_state", THREAD
        yield app, "invoke", Command(resume="yes"), THREAD
        return paused, (yield app, "get_state", THREAD)

    paused, done = runs(scenario)
    assert paused.next == ("tools",)
    assert [i.value for i in paused.interrupts] == ["wire eve?"]
    assert done.next == ()
    assert len(done.values["messages"]) == 4


# --- owners ---------------------------------------------------------------------------------


@pytest.mark.parametrize("same", [False, True])
def test_two_nodes_with_two_histories_and_one_id(runs, world, same):
    """Each record and mark names its message, also if the calls are equal."""
    first = ask(("mail", "bob", "c1"), message_id="ai1")
    second = ask(("mail", "bob" if same else "eve", "c1"), message_id="ai2")

    def scenario(saver):
        builder = plain_loop(world, None, first).builder.__class__(TwoHistories)
        agent = {"messages": [first], "other": [second]}
        builder.add_node("agent", lambda _: agent)
        builder.add_node("tools", recorded(world.tools()))
        builder.add_node("others", recorded(world.tools(), messages_key="other"))
        builder.set_entry_point("agent")
        builder.add_edge("agent", "tools")
        builder.add_edge("agent", "others")
        yield builder.compile(checkpointer=saver), "invoke", GO, THREAD
        return marked((yield saver, "list", THREAD))

    saved = runs(scenario)
    (one,) = start_marks_in(saved, "ai1", "c1")
    (two,) = start_marks_in(saved, "ai2", "c1")
    assert (one.node, two.node) == ("tools", "others")
    assert {one.ended, two.ended} == {"result"}
    returned = [w[2]["recorded"] for w in saved.pending_writes if w[1] == "__return__"]
    texts = {r["message_id"]: r["result"].content for r in returned}
    assert texts == {"ai1": "sent to bob", "ai2": f"sent to {'bob' if same else 'eve'}"}


def test_a_mark_of_other_arguments_does_not_count():
    """An edited call has no start."""
    saver, world = InMemorySaver(), World()
    message = ask(("mail", "bob", "c1"))
    plain_loop(world, saver, message).invoke(GO, THREAD)
    saved = marked(saver.list(THREAD))
    edited = ask(("mail", "eve", "c1")).tool_calls[0]
    own = hash_of_call(message.tool_calls, 0)
    assert len(start_marks_in(saved, "ai1", "c1", request_hash=own)) == 1
    assert start_marks_in(saved, "ai1", "c1", request_hash=hash_request(edited)) == []
    assert start_marks_in(saved, "another message", "c1") == []
