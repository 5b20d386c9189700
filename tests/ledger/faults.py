"""A fault at each call of a checkpointer: `PYTHONPATH=tests python -m ledger.faults [--all]`.

A turn waits for humans, and is answered or abandoned by a message, while one call of the
checkpointer fails: before it has written, after it has, or that call and all that follow. Two calm
messages come behind it. What models read then is judged beside what tools did.
"""

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter
from itertools import count, product
from types import SimpleNamespace

from ledger.agents import KINDS
from ledger.judge import Judge
from ledger.session import ONCE, Session, happen, scenario

FAULTS = ("before", "after", "outage")
EVENTS = ("resume", "message")
PLAINLY = {
    **dict.fromkeys(("record", "delta", "approval", "middleware", "malformed", "sqlite"), False),
    "ids": "unique",
    "never": ("boom",),
    "once": ("transfer",),
    "runs_once": (),
    "router": "name",
    "coroutines": False,
}


def settings_of(name, **changes):
    """A scenario of this kind of agent whose first turn waits in a call that may run once."""
    seeds = count(list(KINDS).index(name), len(KINDS))
    drawn = (SimpleNamespace(**{**vars(scenario(n)), **PLAINLY, **changes}) for n in seeds)
    settings = next(filter(_waits, drawn))
    settings.own_tasks = KINDS[name].own_tasks or settings.record
    return settings


def _waits(settings):
    session = Session(settings)
    try:
        happen(session, "message")
        asked = [pause.value for pause in session.state().interrupts]
        return len(asked) == 1 and "wire_money" in asked[0]
    finally:
        session.close()


def play(settings, event, fault, place):
    """The problems of one play; None if the checkpointer is not called so often."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(settings, folder)
        try:
            for number, each in enumerate(["message", event, "message", "message"]):
                session.draw.seed(number)
                session.world.calm = number > 1
                if number == 1:
                    is_reached = _disturb(session, each, fault, place)
                elif happen(session, each) is False:
                    raise AssertionError(each)
            session.last = session.state()
        finally:
            session.close()
    problems = [f"{problem}: {label}" for problem, label, *_ in Judge(session).verdicts]
    return problems if is_reached else None


def _disturb(session, event, fault, place):
    """Let an event happen while the checkpointer fails; whether it did."""
    session.fault, session.fail_in = fault, place
    noted, session.noted = session.noted, lambda _: noted("saver_fault")
    happen_with = session.begin

    def begin(value, *args):
        session.fail_in = place
        return happen_with(value, *args)

    session.begin = begin
    happen(session, event)
    session.begin, session.noted = happen_with, noted
    session.fault, session.fail_in = "before", 0
    return session.faults > 0


def rows(*, every):
    """The settings, events and faults: of two kinds of agents, or of all."""
    kinds = ["tool_node", "react_v2", "create_agent", "nested", "swarm"] if every else ["react_v2"]
    ways = product(kinds, (False, True), ("sync", "async", "exit"), ("plain", "record", "once"))
    for name, asynchronous, durability, option in ways:
        if option == "once" and (durability == "exit" or name == "swarm"):
            continue
        if option == "record" and "record" not in KINDS[name].may:
            continue
        runs_once = ONCE if option == "once" else ()
        changes = {"record": option == "record", "runs_once": runs_once}
        yield name, {**changes, "asynchronous": asynchronous, "durability": durability}


def main():
    """Return 1 if there is a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="all kinds of agents")
    total, failed = Counter(), 0
    logging.disable()
    for name, changes in rows(every=parser.parse_args().all):
        settings = settings_of(name, **changes)
        for event, fault in product(EVENTS, FAULTS):
            for place in count(1):
                if (problems := play(settings, event, fault, place)) is None:
                    break
                total[name], failed = total[name] + 1, failed + bool(problems)
                row = f"{name} {changes} {event} {fault} {place}"
                sys.stdout.writelines(f"{row}: {problem}\n" for problem in problems)
                sys.stdout.flush()
    sys.stdout.write(f"{sum(total.values())} faults, {failed} with problems; {dict(total)}\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
