"""What happens to a thread. Events draw from `session.draw`, so that the seed decides them."""

import os
import pickle
import time
from contextlib import suppress

from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.types import Command

from langgraph_patch.threads import repair_thread, scan_threads
from ledger.session import CONFIG
from ledger.world import ToolEvent

EVENTS = {
    "message": 5, "resume": 5, "resume_partly": 2, "go_on": 2, "goto": 1.5, "fork": 1.5,
    "saver_fault": 1, "disturbed": 4.5, "kill": 1, "edit": 3, "repair": 2.5,
}  # fmt: skip
"""The events and how often they happen."""


def happen(session, event):
    """Let an event happen; False if it does not apply."""
    draw, config, value = session.draw, CONFIG, None
    match event:
        case "disturbed" | "kill" | "edit" | "repair":
            return _OTHERS[event](session)
        case "message":
            value = _human(session)
        case "resume" | "resume_partly":
            if not (pauses := session.state().interrupts):
                return False
            value = _answers(session, pauses if event == "resume" else [draw.choice(pauses)])
            if len(pauses) == 1 and draw.random() < 0.3:  # an answer without the id
                [answer] = value.resume.values()
                value = Command(resume=answer)
                session.given.pop(str(answer), None)
        case "goto":
            value = Command(goto=session.kind.entry)
        case "fork":
            if not (rows := [*session.graph.get_state_history(CONFIG)][1:8]):
                return False
            config = draw.choice(rows).config
            value = _human(session) if draw.random() < 0.7 else None
        case "saver_fault":
            value = _human_or_answers(session)
    session.fail_in = draw.randint(1, 14) if event == "saver_fault" else 0
    with session.noted(event) as run:
        session.settle(session.begin(value, config), run)
    session.fail_in = 0
    return None


def _human(session):
    number = f"h{next(session.numbers)}"
    return {"messages": [HumanMessage(f"please {number}", id=number)]}


def _answers(session, pauses):
    """An answer to each of these pauses, by its id."""
    answers = {}
    for pause in pauses:
        if isinstance(pause.value, dict):
            kinds = ["approve", "approve", "approve", "reject"]
            asked = pause.value["action_requests"]
            answer = {"decisions": [{"type": session.draw.choice(kinds)} for _ in asked]}
        else:
            answer = f"answer-{next(session.numbers)}"
            session.given[answer] = pause.value, len(session.runs)
        answers[pause.id] = answer
    return Command(resume=answers)


def _human_or_answers(session):
    if (pauses := session.state().interrupts) and session.draw.random() < 0.5:
        return _answers(session, pauses)
    return _human(session)


def _disturbed(session):
    """A run that is cancelled, or overtaken by a message, while its tools are at work."""
    cancels = session.loop and session.draw.random() < 0.6
    with session.noted("cancel" if cancels else "overtaken") as run:
        count, end = session.draw.randint(0, 4), time.monotonic() + 1
        goal = session.world.count(ToolEvent) + count
        first = session.begin(_human_or_answers(session))
        time.sleep(0 if count else session.draw.choice([0, 0.01, 0.03]))
        while not first.done() and session.world.count(ToolEvent) < goal and time.monotonic() < end:
            time.sleep(0.001)
        if cancels:
            first.cancel()
        else:
            with session.noted("overtaking") as second:
                session.settle(session.begin(_human(session)), second)
        session.settle(first, run)
        time.sleep(0.02)  # a cancelled run may still write


def _kill(session):
    """A process that is killed by SIGKILL in the middle of a tool's work."""
    world, file = session.world, session.folder / "log"
    with session.noted("kill"):
        value, count = _human_or_answers(session), session.draw.randint(1, 6)
        session.close()
        file.write_bytes(pickle.dumps(world.entries))
        if (child := os.fork()) == 0:
            try:
                session.open()
                world.file, world.kill_after = file, count
                session.graph.invoke(value, CONFIG, durability=session.settings.durability)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        session.open()
        world.entries = pickle.loads(file.read_bytes())  # noqa: S301 - our own file


def _edit(session):
    """The user stores the state as it is, or deletes a message."""
    draw, messages, values = session.draw, session.state().values.get("messages"), {"messages": []}
    if draw.random() < 0.5 and messages:
        gone = draw.choice(messages[-5:])
        call = getattr(gone, "tool_call_id", None)
        makers = [m for m in messages if m.type == "ai" and call in {c["id"] for c in m.tool_calls}]
        session.forgotten |= {m.id for m in [gone, *makers]}
        values = {"messages": [RemoveMessage(id=gone.id)]}
    for as_node in (None, session.kind.entry):
        with suppress(Exception):  # "Ambiguous update", no such node, no thread
            session.graph.update_state(CONFIG, values, as_node=as_node)
            session.edits.append(len(session.world.entries))
            return None
    return False


def _repair(session):
    """A scan and a repair of the stored thread. A pause survives it unless it is abandoned."""
    before, on_pause = session.state(), session.draw.choice(["keep", "keep", "abandon"])
    if not before.values:
        return False
    list(scan_threads(session.saver))
    options = {"on_pause": on_pause, "min_age": 0.0}
    with session.noted("repair") as run:
        session.settle(session.pool.submit(repair_thread, session.graph, CONFIG, **options), run)
    after = session.state()
    same = (before.interrupts, before.next) == (after.interrupts, after.next)
    if on_pause == "keep" and before.interrupts and not same:
        session.hurt.append(("hurt", "a repair changed the pause"))
    return None


_OTHERS = {"disturbed": _disturbed, "kill": _kill, "edit": _edit, "repair": _repair}
