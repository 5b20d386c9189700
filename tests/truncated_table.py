"""Prints, as Markdown, what agents do with tool calls that their model did not finish writing.

Five wires, each with a token limit and a dead connection inside the arguments of the last call;
each agent bare and patched; sync and async; three stream modes; a message with a complete and a
truncated call, and a message with a truncated call only: 12 threads a cell.

The last table has the messages without a call that can run, and those whose calls are objects: over
six wires, not streamed, streamed and as v3 events.

    python tests/truncated_table.py [WIRE ...]
"""

from __future__ import annotations

import logging
import sys
import warnings
from itertools import product

from support.truncated_agents import AGENTS, BARE, MODES, Seen, run
from support.truncating_servers import ALL_WIRES, COMPLETE, MALFORMED, TRUNCATED, WIRES

CUTS = ("max_tokens", "dead connection")
ANSWERS = ((COMPLETE, TRUNCATED), (TRUNCATED,))


def threads(build, wire: str, cut: str) -> list[tuple[Seen, int]]:
    """What happened in each thread of a cell, and how many complete calls it should have run."""
    seen = []
    with WIRES[wire]() as server:
        for calls, asynchronous, mode in product(ANSWERS, (False, True), MODES):
            server.calls, server.cut = calls, cut
            thread = run(build, server, mode=mode, asynchronous=asynchronous)
            seen.append((thread, len(calls) - 1))
    return seen


def cell(found: list[tuple[Seen, int]]) -> str:
    """Truncated calls that ran / complete calls that ran once / turns answered / threads alive."""
    threads = [thread for thread, _ in found]
    due = sum(calls for _, calls in found)
    truncated = sum(thread.ran["wire_money"] for thread in threads)
    complete = sum(thread.ran["send_email"] == 1 for thread in threads)
    twice = sum(thread.ran["send_email"] > 1 for thread in threads)
    raised = sum(thread.error is not None for thread in threads)
    answered = sum(thread.answered for thread in threads)
    alive = sum(thread.goes_on for thread in threads)
    total = len(threads)
    text = f"{truncated} / {complete} of {due} / {answered} of {total} / {alive} of {total}"
    return text + (f", {raised} raised" if raised else "") + (f", {twice} twice" if twice else "")


def table(builds: dict, wires: list[str]) -> str:
    """One table; a row for each wire and cut, a column for each agent."""
    lines = [f"| wire, end of the stream | {' | '.join(builds)} |", f"|---|{'---|' * len(builds)}"]
    for wire, cut in product(wires, CUTS):
        cells = [cell(threads(build, wire, cut)) for build in builds.values()]
        lines.append(f"| {wire}, {cut} | {' | '.join(cells)} |")
    return "\n".join(lines)


TEXTS = ("chat", "responses", "deepseek")
STREAMED_TEXTS = (*TEXTS, "anthropic", "bedrock")
CASES = {
    "malformed": (STREAMED_TEXTS, {"calls": (MALFORMED,), "cut": None}),
    "MALFORMED_FUNCTION_CALL": (("gemini",), {"calls": (), "cut": "malformed"}),
    "cut": (ALL_WIRES, {"calls": (TRUNCATED,), "cut": "max_tokens"}),
    "complete, then cut": (ALL_WIRES, {"calls": (COMPLETE, TRUNCATED), "cut": "max_tokens"}),
}
"""What a model answers, and the wires on which it can."""


def outcome(build, wire: str, mode: str, answer: dict) -> str:
    """What ran in the first turn, how often the model was asked in it, and how it ended."""
    with ALL_WIRES[wire]() as server:
        for attribute, value in answer.items():
            setattr(server, attribute, value)
        server.__dict__["model"] = server.new_model(streaming=mode != "values")
        seen = run(build, server, mode=mode)
        asked = len(server.requests) - 1
    ran = ", ".join(f"{name} x{times}" for name, times in sorted(seen.ran.items())) or "nothing"
    end = "answered" if seen.answered else "no answer" if seen.chunks else "error"
    return f"{ran} / {asked} / {end}" + ("" if seen.goes_on else ", thread broken")


def unusable_table(builds: dict) -> str:
    """A row for each case and mode, a column for each agent; outcomes with their wires."""
    lines = [f"| message, mode | {' | '.join(builds)} |", f"|---|{'---|' * len(builds)}"]
    for (case, (wires, answer)), mode in product(CASES.items(), ("values", "messages", "v3")):
        cells = []
        for build in builds.values():
            found: dict[str, list[str]] = {}
            for wire in TEXTS if (case, mode) == ("malformed", "values") else wires:
                found.setdefault(outcome(build, wire, mode, answer), []).append(wire)
            one = len(found) == 1
            cells.append("; ".join(k if one else f"{k} ({', '.join(v)})" for k, v in found.items()))
        lines.append(f"| {case}, {mode} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    chosen = sys.argv[1:] or list(WIRES)
    sys.stdout.write(
        "Truncated calls that ran / complete calls that ran once / first turns with an answer / "
        "threads that answer the next message.\n\n"
    )
    sys.stdout.write(f"Patched:\n\n{table(AGENTS, chosen)}\n\n")
    sys.stdout.write(f"Bare:\n\n{table(BARE, chosen)}\n\n")
    sys.stdout.write(
        "What ran in the first turn / how often the model was asked in it / how it ended. Modes: "
        "values (not streamed), messages, v3 events.\n\n"
    )
    sys.stdout.write(f"Patched:\n\n{unusable_table(AGENTS)}\n\n")
    sys.stdout.write(f"Bare:\n\n{unusable_table(BARE)}\n")
