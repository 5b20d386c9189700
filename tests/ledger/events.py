"""What happens to a thread. Events draw from `session.draw`, so that the seed decides them."""

import os
import time
from contextlib import suppress

from langchain_core.messages import HumanMessage, RemoveMessage, ToolMessage
from langgraph.types import Command

from langgraph_patch.threads import arepair_thread, ascan_threads, repair_thread, scan_threads
from ledger.session import CONFIG
from ledger.world import Call, ToolEvent

CLIENT_TEXT = "Successfully handled tool call."
EVENTS = {
    "message": 5, "resume": 2, "resume_by_id": 4, "resume_partly": 2, "go_on": 2, "goto": 1.5,
    "recursion_limit": 1, "step_timeout": 1, "saver_fault": 1, "fork": 1.5, "cancel": 2,
    "overtaken": 2.5, "kill": 1, "rebuild": 0.7, "client_results": 1, "edit_arguments": 1,
    "edit_key": 1, "delete_message": 0.7, "look": 1.5, "abandon": 1,
}  # fmt: skip
"""The events and how often they happen."""


def happen(session, event):
    """Let an event happen; False if it does not apply."""
    if event in _OTHERS:
        return _OTHERS[event](session)
    config, pauses, graph = CONFIG, session.state().interrupts, session.graph
    match event:
        case "resume" | "resume_by_id" | "resume_partly":
            if len(pauses) <= (event == "resume_partly"):
                return False
            if event == "resume_partly":
                pauses = [session.draw.choice(pauses)]
            plain = event == "resume"
            value = _answer(session, pauses[0]) if plain else _answers(session, pauses)
            value = Command(resume=value)
        case "go_on" | "goto":
            value = None if event == "go_on" else Command(goto=session.kind.entry)
        case "message" | "recursion_limit":
            value = _human(session)
        case "fork":
            rows = session.call(graph.get_state_history, graph.aget_state_history, CONFIG)
            if len(rows) < 2:
                return False
            config = session.draw.choice(rows[1:8]).config
            value = _human(session) if session.draw.random() < 0.7 else None
        case _:
            value = _human_or_answers(session)
    if event == "recursion_limit":
        config = {"recursion_limit": session.draw.choice([2, 3, 4])}
    graph.step_timeout = session.draw.choice([0.02, 0.04]) if event == "step_timeout" else None
    session.saver.fail_in = session.draw.randint(1, 14) if event == "saver_fault" else 0
    with session.noted(event) as run:
        session.settle(session.begin(value, config), run)
    graph.step_timeout, session.saver.fail_in = None, 0
    return None


def _human(session):
    number = session.name("h")
    return {"messages": [HumanMessage(f"please {number}", id=number)]}


def _answer(session, pause, *, by_id=False):
    label = session.name("answer-")
    if isinstance(pause.value, dict):
        kinds = ["approve", "approve", "approve", "reject"]
        asked = pause.value["action_requests"]
        return {"decisions": [{"type": session.draw.choice(kinds)} for _ in asked]}
    if by_id:
        session.given[label] = pause.value, len(session.runs)
    return label


def _answers(session, pauses):
    return {pause.id: _answer(session, pause, by_id=True) for pause in pauses}


def _human_or_answers(session):
    if (pauses := session.state().interrupts) and session.draw.random() < 0.5:
        return Command(resume=_answers(session, pauses))
    return _human(session)


# --- two at once ---------------------------------------------------------------------------


def _at_work(session, event):
    """A run that is cancelled, or overtaken by a message, while its tools are at work."""
    if event == "cancel" and not session.loop:
        return False
    with session.noted(event) as run:
        count, end = session.draw.randint(0, 4), time.monotonic() + 1
        goal = session.world.count(ToolEvent) + count
        first = session.begin(_human_or_answers(session))
        time.sleep(0 if count else session.draw.choice([0, 0.01, 0.03]))
        while not first.done() and session.world.count(ToolEvent) < goal and time.monotonic() < end:
            time.sleep(0.001)
        if event == "cancel":
            first.cancel()
        else:
            with session.noted("overtaking") as second:
                session.settle(session.begin(_human(session)), second)
        session.settle(first, run)
        time.sleep(0.02)  # a cancelled run may still write
    return None


def _kill(session):
    """A process that is killed by SIGKILL in the middle of a tool's work."""
    world, file = session.world, session.folder / "log"
    with session.noted("kill"):
        value, count = _human_or_answers(session), session.draw.randint(1, 6)
        session.close()
        file.touch()
        if (child := os.fork()) == 0:
            try:
                session.open()
                world.file, world.kill_after = file, count
                session.graph.invoke(value, CONFIG, durability=session.settings.durability)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        session.open()
        world.read_file(file)


# --- edits ---------------------------------------------------------------------------------


def _open_calls(session):
    """The newest message of a model, and its calls that have no result in the state."""
    messages = session.state().values.get("messages") or []
    done = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    made = next((m for m in reversed(messages) if m.type == "ai"), None)
    return made, [call for call in made.tool_calls if call["id"] not in done] if made else []


def _client_results(session):
    """A chat client invents results for open calls, and sends them with the next message."""
    ids = [call["id"] for call in _open_calls(session)[1]]
    own = [ToolMessage(CLIENT_TEXT, tool_call_id=i, id=f"do-not-render-{i}") for i in ids]
    with session.noted("client_results") as run:
        value = {"messages": own + _human(session)["messages"]}
        session.settle(session.begin(value), run)


def _edit_arguments(session):
    """The user changes the arguments of a call that has no answer yet."""
    world, (made, calls) = session.world, _open_calls(session)
    if not (calls := [call for call in calls if "ref" in call["args"]]):
        return False
    call = session.draw.choice(calls)
    written = world.find(made.id, call["name"], call["args"]["ref"], call["id"])
    changed = f"{written.ref.partition('E')[0]}E{world.count(Call)}"
    world.log(written._replace(ref=changed))
    edited = [{**c, "args": {"ref": changed}} if c is call else c for c in made.tool_calls]
    return _update(session, {"messages": [made.model_copy(update={"tool_calls": edited})]})


def _delete_message(session):
    """The user deletes a message."""
    messages = session.state().values.get("messages")
    if not messages:
        return False
    gone = session.draw.choice(messages[-5:])
    call = getattr(gone, "tool_call_id", None)
    makers = {m.id for m in messages if m.type == "ai" and call in {c["id"] for c in m.tool_calls}}
    session.forgotten |= {gone.id} | makers
    return _update(session, {"messages": [RemoveMessage(id=gone.id)]})


def _update(session, values):
    update = session.graph.update_state, session.graph.aupdate_state
    for as_node in (None, session.kind.entry):
        with suppress(Exception):  # "Ambiguous update", no such node, no thread
            session.call(*update, CONFIG, values, as_node=as_node)
            session.edits.append(len(session.world.entries))
            return None
    return False


def _repair(session, on_pause):
    """A scan and a repair of the stored thread. A pause survives it unless it is abandoned."""
    before, both = session.state(), (repair_thread, arepair_thread)
    if not before.values or (on_pause == "abandon" and not before.interrupts):
        return False
    session.call(scan_threads, ascan_threads, session.saver)
    with session.noted("repair") as run:
        future = session.start(*both, session.graph, CONFIG, on_pause=on_pause, min_age=0.0)
        session.settle(future, run)
    after = session.state()
    same = (before.interrupts, before.next) == (after.interrupts, after.next)
    if on_pause == "keep" and before.interrupts and not same:
        session.hurt.append(f"a repair changed the pause {before.next} to {after.next}")
    return None


def _rebuild(session):
    """The graph is made anew, as by a new process; then comes a message."""
    session.graph = session.kind.build(session)
    return False


_OTHERS = {
    "cancel": lambda session: _at_work(session, "cancel"),
    "overtaken": lambda session: _at_work(session, "overtaken"),
    "kill": _kill,
    "rebuild": _rebuild,
    "client_results": _client_results,
    "edit_arguments": _edit_arguments,
    "edit_key": lambda session: session.kind.keys and _update(session, {"flag": True}),
    "delete_message": _delete_message,
    "look": lambda session: _repair(session, "keep"),
    "abandon": lambda session: _repair(session, "abandon"),
}
