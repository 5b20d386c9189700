"""What happens to a thread. Events draw from `session.draw`, so that the seed decides them."""

import os
import time

from langchain_core.messages import HumanMessage, RemoveMessage, ToolMessage
from langgraph.types import Command

from langgraph_patch import arepair_thread, ascan_threads, repair_thread, scan_threads
from ledger.session import CONFIG
from ledger.world import Emitted, ToolEvent

CLIENT_TEXT = "Successfully handled tool call."

EVENTS = {
    "message": 5,
    "resume": 2,
    "resume_by_id": 4,
    "resume_partly": 2,
    "go_on": 2,
    "goto": 1.5,
    "recursion_limit": 1,
    "step_timeout": 1,
    "saver_fault": 1,
    "fork": 1.5,
    "cancel": 2,
    "overtaken": 2.5,
    "kill": 1,
    "rebuild": 0.7,
    "client_results": 1,
    "edit_arguments": 1,
    "edit_key": 1,
    "delete_message": 0.7,
    "look": 1.5,
    "abandon": 1,
}
"""The events and how often they happen."""


def happen(session, event):
    """Let an event happen; say whether it applied."""
    if event in _OTHERS:
        return _OTHERS[event](session) is not False
    config, pauses = CONFIG, session.pauses()
    given = pauses[:1] if event == "resume" else pauses
    match event:
        case "resume" | "resume_by_id" | "resume_partly":
            if len(pauses) <= (event == "resume_partly"):
                return False
            given = [session.draw.choice(pauses)] if event == "resume_partly" else given
            value = _answers(session, given, plain=event == "resume")
        case "go_on" | "goto":
            value = None if event == "go_on" else Command(goto=session.kind.entry)
        case "message" | "recursion_limit":
            value = _human(session)
        case "fork":
            rows = list(session.graph.get_state_history(CONFIG)) if not session.driver.loop else (
                session.driver.wait(_collect(session.graph.aget_state_history(CONFIG))))
            if len(rows) < 2:
                return False
            config = session.draw.choice(rows[1:8]).config
            value = _human(session) if session.draw.random() < 0.7 else None
        case _:
            value = _human_or_answers(session)
    if event == "recursion_limit":
        config = {"recursion_limit": session.draw.choice([2, 3, 4])}
    if event == "step_timeout":
        session.graph.step_timeout = session.draw.choice([0.02, 0.04])
    if event == "saver_fault":
        session.driver.saver.fail_in = session.draw.randint(1, 14)
    session.run(event, value, config)
    session.graph.step_timeout, session.driver.saver.fail_in = None, 0
    if event.startswith("resume"):
        _check_answers(session, given)
    return True


async def _collect(rows):
    return [row async for row in rows]


def _human(session):
    number = session.next("h")
    return {"messages": [HumanMessage(f"please {number}", id=number)]}


def _answer(session, pause):
    label = session.next("answer-")
    if isinstance(pause.value, dict):
        kinds = session.draw.choices(["approve", "reject"], [3, 1], k=len(
            pause.value["action_requests"]))
        return {"label": label, "decisions": [{"type": kind} for kind in kinds]}
    session.asked[label] = pause.value
    return label


def _answers(session, pauses, *, plain=False):
    if plain:
        return Command(resume=_answer(session, pauses[0]))
    return Command(resume={pause.id: _answer(session, pause) for pause in pauses})


def _human_or_answers(session):
    pauses = session.pauses()
    if pauses and session.draw.random() < 0.5:
        return _answers(session, pauses)
    return _human(session)


def _check_answers(session, pauses):
    """An answer to a live pause must reach the tool that asked."""
    run = session.runs[-1]
    questions = [pause.value for pause in pauses if isinstance(pause.value, str)]
    events = session.world.entries[run.begin :]
    reached = any(isinstance(e, ToolEvent) and e.kind == "answered" for e in events)
    # A pause in a run in which the saver failed may not be stored in full.
    after_fault = len(session.runs) > 1 and session.runs[-2].event == "saver_fault"
    if questions and not (run.error or reached or after_fault):
        ended = {e.key for _, e in session.world.all(ToolEvent) if e.kind == "end"}
        asking = [e.key for _, e in session.world.all(ToolEvent) if e.kind == "start"
                  and any(q.endswith(f"receipt-{e.execution}") for q in questions)]
        if not ended.issuperset(asking):
            session.hurt.append(f"{run.event}: no tool got the answer to {questions[0]}")


# --- two at once ---------------------------------------------------------------------------


def _wait_for_tools(session, future):
    """Wait until tools have logged a few more events, or the run has ended."""
    count = session.draw.randint(0, 4)
    goal, end = session.world.count(ToolEvent) + count, time.monotonic() + 1
    time.sleep(0 if count else session.draw.choice([0, 0.01, 0.03]))
    while not future.done() and session.world.count(ToolEvent) < goal and time.monotonic() < end:
        time.sleep(0.001)


def _cancel(session):
    """A run that is cancelled while its tools are at work."""
    if not session.driver.loop:
        return False
    with session.noted("cancel") as run:
        future = session.begin(_human_or_answers(session))
        _wait_for_tools(session, future)
        future.cancel()
        session.settle(future, run)
        time.sleep(0.02)  # a cancelled run may still write
    return True


def _overtaken(session):
    """The user writes while a run is at work."""
    with session.noted("overtaken") as run:
        first = session.begin(_human_or_answers(session))
        _wait_for_tools(session, first)
        with session.noted("overtaking") as second:
            session.settle(session.begin(_human(session)), second)
        session.settle(first, run)


def _kill(session):
    """A process that is killed by SIGKILL in the middle of a tool's work."""
    with session.noted("kill") as run:
        run.error = "killed"
        value = _human_or_answers(session)
        session.driver.close()
        if (child := os.fork()) == 0:
            try:
                session.driver.open()
                session.build()
                session.world.kill_after = session.draw.randint(1, 6)
                session.graph.invoke(value, CONFIG, durability=session.driver.durability)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        session.driver.open()
        session.build()
        session.world.reload()


# --- edits ---------------------------------------------------------------------------------


def _client_results(session):
    """A chat client invents results for open calls, and sends them with the next message."""
    messages = session.messages()
    done = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    made = next((m.tool_calls for m in reversed(messages) if m.type == "ai"), [])
    invented = [
        ToolMessage(CLIENT_TEXT, tool_call_id=c["id"], id=f"do-not-render-{session.next('h')}")
        for c in made
        if c["id"] not in done
    ]
    if not invented:
        return False
    session.run("client_results", {"messages": invented + _human(session)["messages"]})
    return True


def _edit_arguments(session):
    """The user changes the arguments of a call of the newest message that has no answer yet.

    A history in which a call with other arguments has an answer already is the user's own.
    """
    messages, world = session.messages(), session.world
    done = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    made = next((m for m in reversed(messages) if m.type == "ai"), None)
    calls = [c for c in made.tool_calls if "ref" in c["args"] and c["id"] not in done] if made else []
    if not calls:
        return False
    call = session.draw.choice(calls)
    key = world.find(made.id, call["name"], call["args"]["ref"], call["id"])
    emitted = next((e for _, e in world.all(Emitted) if e.key == key), None)
    if emitted is None:
        return False
    changed = f"{key.ref.partition('E')[0]}E{world.count(Emitted)}"
    world.log(emitted._replace(key=key._replace(ref=changed)))
    edited = [{**c, "args": {"ref": changed}} if c is call else c for c in made.tool_calls]
    return session.update({"messages": [made.model_copy(update={"tool_calls": edited})]})


def _edit_key(session):
    """The user changes another key of the state."""
    return session.kind.flag and session.update({"flag": True})


def _delete_message(session):
    """The user deletes a message."""
    messages = [m for m in session.messages() if m.id]
    if not messages:
        return False
    gone = session.draw.choice(messages[-5:])
    call = getattr(gone, "tool_call_id", None)
    makers = {m.id for m in messages if m.type == "ai" and call in {c["id"] for c in m.tool_calls}}
    session.forgotten |= {gone.id} | makers
    return session.update({"messages": [RemoveMessage(id=gone.id)]})


def _look(session):
    """A scan and a repair of the stored thread. A pause must survive it."""
    return _repair(session, "keep")


def _abandon(session):
    """A repair of the stored thread that abandons the pause."""
    return bool(session.pauses()) and _repair(session, "abandon")


def _repair(session, on_pause):
    options = {"on_pause": on_pause, "min_age": 0.0}
    saver, before = session.driver.saver, session.state()
    if before is None or not before.values:
        return False

    async def scan_and_repair():
        await _collect(ascan_threads(saver))
        await arepair_thread(session.graph, CONFIG, **options)

    with session.noted("repair") as run:
        try:
            if session.driver.loop:
                session.driver.wait(scan_and_repair())
            else:
                list(scan_threads(saver))
                repair_thread(session.graph, CONFIG, **options)
        except Exception as error:  # noqa: BLE001 - every failure is judged
            session.failed(run, error)
    after = session.state()
    same = (before.interrupts, before.next) == (after.interrupts, after.next)
    if on_pause == "keep" and before.interrupts and not same:
        session.hurt.append(f"a repair changed the pause {before.next} to {after.next}")
    return True


def _rebuild(session):
    """The graph is made anew, as by a new process."""
    session.build()
    return False


_OTHERS = {
    "cancel": _cancel,
    "overtaken": _overtaken,
    "kill": _kill,
    "rebuild": _rebuild,
    "client_results": _client_results,
    "edit_arguments": _edit_arguments,
    "edit_key": _edit_key,
    "delete_message": _delete_message,
    "look": _look,
    "abandon": _abandon,
}
