"""What a seed decides, and playing it."""

import random
import tempfile
import warnings
from types import SimpleNamespace

from ledger.agents import KINDS
from ledger.events import EVENTS, happen
from ledger.session import Session


def scenario(seed, *, kills=True):
    """Everything that a seed decides, but for the draws of the events."""
    draw = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
    name = list(KINDS)[seed % len(KINDS)]
    chosen = draw.choices(list(EVENTS), list(EVENTS.values()), k=draw.randint(2, 8))
    chosen = [event if kills or event != "kill" else "message" for event in chosen]
    asynchronous = draw.random() < 0.5 and "kill" not in chosen
    return SimpleNamespace(
        seed=seed,
        name=name,
        events=chosen,
        asynchronous=asynchronous,
        coroutines=asynchronous and draw.random() < 0.7,
        sqlite=draw.random() < 0.35 or "kill" in chosen,
        durability=draw.choices(["sync", "async", "exit"], [4, 4, 2])[0],
        state=draw.choice(KINDS[name].states),
        retry=draw.random() < 0.2,  # whether the tools node has a RetryPolicy
        handle_errors=draw.random() < 0.3,  # whether a ToolNode turns errors into messages
        # unique; call_0 anew in each message; as some servers write them; one for all of a message
        ids=draw.choices(["unique", "per_message", "function", "twins"], [6, 2, 1, 1])[0],
        malformed=draw.random() < 0.2,  # whether some calls have incomplete arguments
        same_args=draw.random() < 0.15,  # whether calls of a tool have the same arguments
        never=() if draw.random() < 0.7 else ("boom",),  # the tools that are not called
        once=("write_todos",),  # those that are called once in a message
    )


def play(settings, *, wrapped=True):
    """Play a scenario: a message, its events, and two calm messages."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(settings, folder, wrapped=wrapped)
        try:
            for number, event in enumerate(["message", *settings.events, "message", "message"]):
                session.draw.seed(f"event {settings.seed} {number}")
                session.world.calm = number > len(settings.events)
                if not happen(session, event):
                    happen(session, "message")
                if session.world.calm and session.runs[-1].error:
                    session.dead = session.dead or f"calm message: {session.runs[-1].error[:90]}"
                if session.dead:
                    break
            session.values = session.state().values if session.state() else {}
        finally:
            session.driver.close()
    return session
