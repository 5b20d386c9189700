"""What happens to a thread: each event is a function that takes a `Session`.

An event returns whether it applied. Events draw from `session.draw`, so that the seed of a
scenario decides them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.types import Command

from langgraph_patch import (
    arepair_thread,
    ascan_threads,
    repair_thread,
    scan_threads,
)
from ledger.world import Emitted

if TYPE_CHECKING:
    from ledger.run import Session

KILL_TIMEOUT = 20.0


# --- inputs of runs ------------------------------------------------------------------------


def human(session: Session) -> Any:
    """A new user message."""
    session.messages += 1
    return {"messages": [HumanMessage(f"please {session.messages}", id=f"h{session.messages}")]}


def answer_to(session: Session, interrupt: Any) -> Any:
    """An answer to that interrupt, with a label that the tool logs."""
    session.answers += 1
    if isinstance(interrupt.value, dict) and "action_requests" in interrupt.value:
        amount = len(interrupt.value["action_requests"])
        kinds = session.draw.choices(["approve", "reject"], [3, 1], k=amount)
        decisions = [{"type": kind} for kind in kinds]
        return {"label": f"answer-{session.answers}", "decisions": decisions}
    return f"answer-{session.answers}"


def answers_by_id(session: Session, interrupts: list[Any]) -> Any:
    """A resume that answers these interrupts by id."""
    return Command(resume={each.id: answer_to(session, each) for each in interrupts})


def some_value(session: Session) -> Any:
    """An answer to the pause, if there is one, or a new message."""
    interrupts = session.interrupts()
    if interrupts and session.draw.random() < 0.5:
        return answers_by_id(session, interrupts)
    return human(session)


# --- ordinary events -------------------------------------------------------------------------


def message(session: Session) -> bool:
    """The user writes, whatever the thread waits for."""
    session.run("message", human(session))
    return True


def resume(session: Session) -> bool:
    """A plain resume."""
    if not (interrupts := session.interrupts()):
        return False
    session.run("resume", Command(resume=answer_to(session, interrupts[0])), answers=interrupts)
    return True


def resume_by_id(session: Session) -> bool:
    """A resume that answers all interrupts by id."""
    if not (interrupts := session.interrupts()):
        return False
    session.run("resume_by_id", answers_by_id(session, interrupts), answers=interrupts)
    return True


def resume_list(session: Session) -> bool:
    """A resume with a list of answers, as some clients send it."""
    interrupts = session.interrupts()
    if not interrupts or session.kind.approval:
        return False
    session.run("resume_list", Command(resume=[answer_to(session, i) for i in interrupts]))
    return True


def resume_partly(session: Session) -> bool:
    """A resume that answers one interrupt of several."""
    if len(interrupts := session.interrupts()) < 2:
        return False
    one = session.draw.choice(interrupts)
    session.run("resume_partly", answers_by_id(session, [one]), answers=[one])
    return True


def go_on(session: Session) -> bool:
    """`invoke(None)`."""
    session.run("go_on", None)
    return True


def goto(session: Session) -> bool:
    """`Command(goto=...)` to the model."""
    session.run("goto", Command(goto=session.kind.entry))
    return True


def recursion_limit(session: Session) -> bool:
    """A message with a recursion limit that is too low."""
    limit = session.draw.choice([2, 3, 4])
    session.run("recursion_limit", human(session), config={"recursion_limit": limit})
    return True


def step_timeout(session: Session) -> bool:
    """A run with a time limit for each step."""
    session.graph.step_timeout = session.draw.choice([0.02, 0.04])
    try:
        session.run("step_timeout", some_value(session))
    finally:
        session.graph.step_timeout = None
    return True


def saver_fault(session: Session) -> bool:
    """A run in which one call of the saver fails."""
    value = some_value(session)
    session.driver.saver.fail_in = session.draw.randint(1, 14)
    try:
        session.run("saver_fault", value)
    finally:
        session.driver.saver.fail_in = 0
    return True


def fork(session: Session) -> bool:
    """A run that begins at an older checkpoint."""
    rows = [r.config for r in session.rows() if not r.config["configurable"].get("checkpoint_ns")]
    if len(rows) < 2:
        return False
    older = session.draw.choice(rows[1:8])
    value = human(session) if session.draw.random() < 0.7 else None
    session.run("fork", value, config=older, replay=True)
    return True


# --- two at once -----------------------------------------------------------------------------


def _wait_for_tool(session: Session, run: Future[Any], events: int) -> None:
    """Wait until tools have logged so many more events, or the run has ended."""
    goal = session.world.tool_events() + events
    end = time.monotonic() + 1.0
    while not run.done() and session.world.tool_events() < goal and time.monotonic() < end:
        time.sleep(0.001)


def cancel(session: Session) -> bool:
    """A run that is cancelled while its tools are at work."""
    if not session.driver.asynchronous:
        return False
    with session.recorded_run("cancel") as run:
        value = some_value(session)
        run.has_input = isinstance(value, dict)
        future = session.begin(value)
        _wait_for_tool(session, future, session.draw.randint(1, 4))
        future.cancel()
        session.settle(future, run)
    time.sleep(0.02)  # a cancelled run may still write
    return True


def double_texting(session: Session) -> bool:
    """Two messages at once."""
    with session.recorded_run("double_texting") as run:
        futures = [session.begin(human(session))]
        time.sleep(session.draw.choice([0.0, 0.01, 0.03]))
        futures.append(session.begin(human(session)))
        for future in futures:
            session.settle(future, run)
    return True


def overtaken(session: Session) -> bool:
    """The user writes while the tools of a run are at work."""
    with session.recorded_run("overtaken") as run:
        value = some_value(session)
        run.has_input = isinstance(value, dict)
        first = session.begin(value)
        _wait_for_tool(session, first, session.draw.randint(1, 4))
        with session.recorded_run("overtaking") as second:
            session.settle(session.begin(human(session)), second)
        session.settle(first, run)
    return True


def kill(session: Session) -> bool:
    """A process that is killed by SIGKILL in the middle of a tool's work."""
    if session.driver.asynchronous or session.driver.path is None or session.world.file is None:
        return False
    with session.recorded_run("kill") as run:
        value = some_value(session)
        run.has_input = isinstance(value, dict)
        session.driver.close()
        if (child := os.fork()) == 0:
            _die_at_work(session, value)
        _wait_for_child(child)
        session.driver.saver = session.driver.open()
        session.graph = session.build()
        session.world.reload()
    return True


def _die_at_work(session: Session, value: Any) -> None:
    """In the child process: run the graph until the ledger kills this process."""
    try:
        session.driver.saver = session.driver.open()
        session.graph = session.build()
        session.world.kill_after = session.draw.randint(1, 6)
        session.driver.here(session.graph, value, session.config)
    finally:
        os._exit(0)


def _wait_for_child(child: int) -> None:
    end = time.monotonic() + KILL_TIMEOUT
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)


# --- edits -------------------------------------------------------------------------------------


def edit_arguments(session: Session) -> bool:
    """The user changes the arguments of a call of the newest message that has no answer yet.

    A history in which a call with other arguments has an answer already is the user's own.
    """
    messages = session.messages_in_state()
    made = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
    done = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    calls = made.tool_calls if made is not None else []
    calls = [c for c in calls if "ref" in c["args"] and c["id"] not in done]
    if made is None or not calls or not made.id or session.kit.state == "concatenated":
        return False
    call = session.draw.choice(calls)
    whole = (made.id, call["id"], call["name"], call["args"]["ref"])
    emitted = next((e for _, e in session.world.all(Emitted) if e.key == whole), None)
    if emitted is None:
        return False
    changed = f"{emitted.key.ref.partition('E')[0]}E{session.world.count(Emitted)}"
    session.world.log(emitted._replace(key=emitted.key._replace(ref=changed)))
    edited = [{**c, "args": {"ref": changed}} if c is call else c for c in made.tool_calls]
    return session.update({"messages": [made.model_copy(update={"tool_calls": edited})]})


def edit_key(session: Session) -> bool:
    """The user changes another key of the state."""
    return session.kind.flag and session.update({"flag": True})


def delete_message(session: Session) -> bool:
    """The user deletes a message."""
    messages = [m for m in session.messages_in_state() if m.id]
    if not messages or session.kit.state == "concatenated":
        return False
    gone = session.draw.choice(messages[-5:])
    session.forgotten.add(str(gone.id))
    if gone.type == "tool":
        session.forgotten.update(
            str(m.id)
            for m in messages
            if isinstance(m, AIMessage) and any(c["id"] == gone.tool_call_id for c in m.tool_calls)
        )
    return session.update({"messages": [RemoveMessage(id=str(gone.id))]})


# --- the library's own reading and repairing ---------------------------------------------------


def look(session: Session) -> bool:
    """A scan and a repair of the stored thread, with no new message. A pause must survive it."""
    before = session.pause()
    _repair(session, on_pause="keep")
    if before and session.pause() != before:
        session.hurt.append(f"a repair changed the pause {before} to {session.pause()}")
    return True


def abandon(session: Session) -> bool:
    """A repair of the stored thread that abandons the pause."""
    if not session.interrupts():
        return False
    _repair(session, on_pause="abandon")
    return True


def _repair(session: Session, on_pause: Any) -> None:
    options: dict[str, Any] = {"on_pause": on_pause, "min_age": 0.0}
    graph, config, driver = session.graph, session.config, session.driver
    if not session.rows():
        return

    async def scan_and_repair() -> None:
        _ = [report async for report in ascan_threads(driver.saver)]
        await arepair_thread(graph, config, **options)

    with session.recorded_run("repair") as run:
        run.has_input = False
        try:
            if driver.asynchronous:
                driver.wait(scan_and_repair())
            else:
                list(scan_threads(driver.saver))
                repair_thread(graph, config, **options)
        except Exception as error:  # noqa: BLE001 - every failure is judged
            session.failed(run, error)


EVENTS: dict[Callable[[Session], bool], float] = {
    message: 5,
    resume: 2,
    resume_by_id: 4,
    resume_list: 0.5,
    resume_partly: 2,
    go_on: 2,
    goto: 1.5,
    cancel: 2,
    kill: 1,
    edit_arguments: 1,
    edit_key: 1,
    delete_message: 0.7,
    fork: 1.5,
    double_texting: 1,
    overtaken: 1.5,
    recursion_limit: 1,
    step_timeout: 1,
    saver_fault: 1,
    look: 1.5,
    abandon: 1,
}
"""The events and how often they happen."""
