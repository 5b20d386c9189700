"""All that happened in a scenario, for a reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from ledger.facts import Run
from ledger.judge import Verdict
from ledger.world import Entry, Read, ToolEvent, World


def write_transcript(
    title: str, world: World, runs: Sequence[Run], verdicts: Sequence[Verdict]
) -> str:
    """All that happened, line by line."""
    lines = [title]
    judged: dict[int, list[Verdict]] = {}
    for verdict in verdicts:
        judged.setdefault(verdict.read, []).append(verdict)
    begins: dict[int, list[Run]] = {}
    for run in runs:
        begins.setdefault(run.begin, []).append(run)
    for number, entry in enumerate([*world.entries, None]):
        for run in begins.get(number, ()):
            lines += _run_lines(run)
        if entry is not None:
            lines += _entry_lines(number, entry, judged.get(number, ()))
    return "\n".join(lines)


def _run_lines(run: Run) -> list[str]:
    """The event, how it ended, and what was recorded before it."""
    results, errors = sorted(run.evidence.executions), sorted(run.evidence.errors)
    return [
        f"--- {run.event}" + (f" -> {run.error[:150]}" if run.error else ""),
        f"    recorded before: results {results}, errors {errors}",
    ]


def _entry_lines(number: int, entry: Entry, verdicts: Sequence[Verdict]) -> list[str]:
    """An entry of the log; a model call with its history where there are new verdicts."""
    if isinstance(entry, ToolEvent):
        key = entry.key
        call = f"{key.name} {key.ref} {key.call} in {key.message}"
        execution = f"(receipt {entry.execution}, attempt {entry.attempt})"
        return [f"{number:4} tool {entry.kind:8} {call} {execution} {entry.label}"]
    if not isinstance(entry, Read):
        return [f"{number:4} {entry}"]
    lines = [f"{number:4} READ by {entry.agent} {entry.refusal}"]
    if verdicts or entry.refusal:
        lines += [f"         | {line}" for line in history(entry.messages)]
    for verdict in verdicts:
        if verdict.outcome != "true":
            call = f"[{verdict.key.name} {verdict.key.ref}]"
            lines.append(f"     ==> {verdict.outcome.upper()} {verdict.label} {call}")
    return lines


def history(messages: Any) -> Iterator[str]:
    """Each message on a line."""
    for m in messages:
        if m.type == "system":
            continue
        who = m.type
        if isinstance(m, AIMessage):
            who += "".join(f" {c['name']}[{c['id']}]{c['args']}" for c in m.tool_calls)
        elif isinstance(m, ToolMessage):
            who += f" {m.tool_call_id} ({m.additional_kwargs.get('langgraph_patch', '')})"
        yield f"{who} {m.id}: {m.text[:220]}"
