"""Print what happens to threads in the states that a provider refuses, as Markdown.

Each state, each wire, in each place that asks again: how many requests each of three turns took;
`-` is a turn that was refused. Needs the integrations: `python scripts/states_table.py`.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from kit import Desk
from support.refused_wires import reason
from support.refusing import PLACES, RefusingModel
from support.states import FOREIGN, STATES
from support.wires import WIRES

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def requests(place: str, wire: str, history: list[Any]) -> list[int]:
    """How many requests each of three turns took; 0 for a turn that was refused."""
    model = RefusingModel(rule=partial(reason, wire))
    graph = PLACES[place](model, Desk().tools(), checkpointer=InMemorySaver())
    graph.update_state(CONFIG, {"messages": history[:-1]}, as_node=START)
    found = []
    for message in (history[-1], HumanMessage("Then?"), HumanMessage("And then?")):
        before = len(model.seen)
        try:
            graph.invoke({"messages": [message]}, CONFIG)
        except Exception:  # noqa: BLE001 - whatever the integration raises, the turn is refused
            found.append(0)
        else:
            found.append(len(model.seen) - before)
    return found


def cell(counts: list[int]) -> str:
    """The turns of a thread, in short."""
    return "".join(map(str, counts)).replace("0", "-")


def table(states: dict[str, Any], place: str) -> list[str]:
    """The rows of one place."""
    rows = [f"| {place} | {' | '.join(WIRES)} |", "|---" * (len(WIRES) + 1) + "|"]
    for name, (history, _) in states.items():
        cells = [cell(requests(place, wire, history)) for wire in WIRES]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for each in PLACES:
        sys.stdout.write("\n".join(table({**STATES, **FOREIGN}, each)) + "\n\n")
