"""Jobs of an application that delete old checkpoints, and a call that runs once beside them.

`play` lets a job run at a moment of a call, and answers from every side; the bank says how often it
paid.
"""

from __future__ import annotations

import threading
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.types import Command

from support.bank import REFUSED, THREAD, Talk
from support.databases import execute, open_saver

_RANKED = "SELECT thread_id, checkpoint_ns, checkpoint_id, ROW_NUMBER() OVER (PARTITION BY {by} "
_RANKED += "ORDER BY checkpoint_id DESC) AS n FROM checkpoints"
_KEPT = "(thread_id, checkpoint_ns, checkpoint_id) IN (SELECT thread_id, checkpoint_ns, "
_KEPT += "checkpoint_id FROM ({ranked}) AS ranked WHERE n <= {count})"
_ORPHANS = "DELETE FROM {writes} WHERE (thread_id, checkpoint_ns, checkpoint_id) NOT IN "
_ORPHANS += "(SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints)"


def _newest(count: int, by: str) -> str:
    """All but the newest checkpoints of each thread, or of each of its namespaces."""
    kept = _KEPT.format(ranked=_RANKED.format(by=by), count=count)
    return f"DELETE FROM checkpoints WHERE NOT {kept}"  # noqa: S608 - our texts


_NEWEST_ONE = _KEPT.format(ranked=_RANKED.format(by="thread_id"), count=1)
JOBS = {
    "newest 1": (_newest(1, "thread_id"), _ORPHANS),
    "newest 2": (_newest(2, "thread_id"), _ORPHANS),
    "newest 10, writes stay": (_newest(10, "thread_id"),),
    "newest 1 of each namespace": (_newest(1, "thread_id, checkpoint_ns"), _ORPHANS),
    "older than a date": (
        "DELETE FROM checkpoints WHERE checkpoint_id < '1f000000-0000-6000-8000-000000000000'",
        _ORPHANS,
    ),
    "older than now, but the newest": (
        f"DELETE FROM checkpoints WHERE checkpoint_id < 'f' AND NOT {_NEWEST_ONE}",  # noqa: S608 - our texts
        _ORPHANS,
    ),
    "other namespaces": ("DELETE FROM checkpoints WHERE checkpoint_ns <> ''", _ORPHANS),
    "writes alone": (f"DELETE FROM {{writes}} WHERE NOT {_NEWEST_ONE}",),  # noqa: S608 - our texts
}
"""What each job runs, by its name. No text has anything of a caller."""

MOMENTS = ("before", "while", "after")


def play(database: str, job: str, moment: str, *, neighbour: bool) -> tuple[list[int], list[Any]]:
    """Let a job run before, while or after a tool works, and answer again and again.

    Args:
        database: A database, which is empty.
        job: The name of the job.
        moment: When it runs.
        neighbour: Whether another thread, which is longer and newer, is in the database.

    Returns:
        What was paid, and the error of each run, or None.
    """
    writes = "checkpoint_writes" if database.startswith("postgresql:") else "writes"
    with open_saver(database) as saver:
        saver.setup()
        talk = Talk("create_agent", saver=saver)

        def run_job(when: str) -> None:
            if when == moment:
                execute(database, *(text.format(writes=writes) for text in JOBS[job]))

        for _ in range(3):
            talk.graph.update_state(THREAD, {"messages": [HumanMessage("hi")]}, as_node="__start__")
        talk.say("pay 5")
        asked = talk.graph.get_state(THREAD).config
        if neighbour:
            other: Any = {"configurable": {"thread_id": "2"}}
            for _ in range(12):
                start = {"messages": [HumanMessage("hi")]}
                talk.graph.update_state(other, start, as_node="__start__")
        run_job("before")
        talk.bank.gate.clear()
        raised: list[Any] = []
        first = threading.Thread(target=lambda: raised.append(talk.answer("yes")))
        first.start()
        while first.is_alive() and not talk.bank.begun.wait(0.01):
            pass
        run_job("while")
        second = threading.Thread(target=lambda: raised.append(talk.answer("yes")))
        second.start()
        second.join(1)
        talk.bank.gate.set()
        first.join()
        second.join()
        run_job("after")
        found = [state.config for state in talk.graph.get_state_history(THREAD) if state.next]
        for config in [asked, *found]:
            raised += [talk.run(value, config) for value in (Command(resume="yes"), None)]
        return talk.bank.paid, raised


def check(paid: list[int], raised: list[Any]) -> None:
    """It was paid once, or a run has said that the call was started; never twice."""
    assert paid == [5] or (paid == [] and REFUSED in raised), (paid, raised)
