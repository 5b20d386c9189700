"""Prints what each wire says of each defect, before the repair and after it, as Markdown."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from typing import Any

from damaged import DAMAGED
from langgraph_patch.history.forms.plain import portable_messages
from langgraph_patch.history.patch import patch_messages
from support.wires import WIRES, refusals

# A row, and what the names of its histories begin with.
ROWS = {
    "call without a result": ("F1-", "F2-", "F26-", "F10-block-and"),
    "result after a user message, or before its call": ("F6-steering", "F6-result-before"),
    "result after another AI message": ("F6-streamed-text",),
    "result after a system message": ("F6-reminder",),
    "result without a call": ("F7-",),
    "arguments cut off": ("F9-cut-arguments", "F9-nothing-known", "F9-text-in"),
    "stored chunk, cut in its arguments": ("F25-stored-chunk", "F25-left-over-chunk"),
    "call only in a `tool_use` block": ("F10-tool-use",),
    "call only in a `function_call` item": ("F10-function-call",),
    "call only in a standard block": ("F10-standard-block", "F10-invalid-block"),
    'call only in `additional_kwargs["tool_calls"]`': ("F10-raw",),
    "custom tool call (OpenAI)": ("F10-custom",),
    "id used again in a later turn": ("F11-",),
    "id twice in one message": ("F12-id-twice", "F12-result-under"),
    "id None or empty": ("F12-id-none", "F12-id-empty"),
    "id too long": ("F12-id-too-long", "F12-id-of"),
    "name empty or odd": ("F12-name",),
    "two results for one call": ("F13-",),
    "result in a wrong role": ("F29-f", "F29-tool-role", "F29-result", "F29-human-with", "F29-leg"),
    "call beside a server-side tool (Anthropic)": ("F27-server-tool-beside",),
}

NOTES = """\
"400": in at least one shape of the message, the provider refuses the request or the integration
cannot build it. "2nd": the model is asked again, with the plain form, and answers.

- "ok" before the repair can be silence: Gemini drops calls and results that it cannot pair, and
  sends the first result of an id used again for the later call too.
- Mistral: older servers (reports up to 2026-06) refuse a user message right after a tool message,
  as it often is after a repair. It is left alone: newer servers accept it.
- Left alone before a refusal: ids, names, and blocks of other providers."""


def _refuses(wire: str, histories: list[list], repair: Any = patch_messages) -> bool:
    """Whether a wire refuses one of these histories, repaired so."""
    repaired = [repair(history).messages for history in histories]
    return any(refusals(wire, messages, ours_only=False) for messages in repaired)


def cell(wire: str, names: list[str]) -> str:
    """What a wire says of these histories before and after."""
    broken = [DAMAGED[name] for name in names]
    before = "400" if any(refusals(wire, each, ours_only=False) for each in broken) else "ok"
    after = "ok"
    if _refuses(wire, broken):
        after = "400" if _refuses(wire, broken, portable_messages) else "2nd"
    return "ok" if before == after else f"{before}→{after}"


def table() -> str:
    """The table and its notes; damage of which all wires say the same shares a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for title, prefixes in ROWS.items():
        names = [name for name in DAMAGED if name.startswith(prefixes)]
        alike.setdefault(tuple(cell(wire, names) for wire in WIRES), []).append(title)
    lines = [f"| damage | {' | '.join(WIRES)} |", f"|---|{len(WIRES) * '---|'}"]
    lines += [f"| {'; '.join(titles)} | {' | '.join(cells)} |" for cells, titles in alike.items()]
    return "\n".join([*lines, "", NOTES])


if __name__ == "__main__":
    logging.disable()  # the integrations log each block that they drop
    sys.stdout.write(f"{table()}\n")
