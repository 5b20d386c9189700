"""What patching costs a healthy thread: a loop of 100 turns, bare and patched.

Every variant of an agent runs the same script into a database of its own, turn beside turn. CPU
time is the median of the rounds' ratios; rows and bytes are all that `SqliteSaver` keeps.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware as Deep
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.prebuilt import create_react_agent
from measuring import Row, compared, spent

from kit import Desk, StrictModel, calls, loop
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware as Ours

Build = Callable[..., Any]


def hand_built(model: Any, tools: Any, *, checkpointer: Any) -> Any:
    """The agent of LangGraph's tutorial."""
    return loop(model, tools).compile(checkpointer=checkpointer)


def both(build: Build) -> dict[str, Build]:
    """An agent, bare and patched."""
    return {
        "bare": build,
        "with_patching": lambda *a, **options: with_patching(build(*a, **options)),
    }


AGENTS: Mapping[str, Mapping[str, Build]] = {
    "hand-built agent": both(hand_built),
    "create_react_agent": both(create_react_agent),
    "create_agent": {
        **both(create_agent),
        "our middleware": partial(create_agent, middleware=[Ours()]),
        "deepagents' middleware": partial(create_agent, middleware=[Deep()]),
    },
}


class Bench:
    """One thread that a variant of an agent talks in; its CPU seconds, and what it keeps."""

    def __init__(self, build: Build, path: Path | None, turns: int) -> None:
        self.path, self.seconds = path, 0.0
        self.saver: Any = InMemorySaver()
        if path is not None:
            self.saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
        # Ids and texts are as long in every turn.
        script: list[AIMessage] = []
        for turn in range(turns):
            mails = [("mail", {"to": f"p{number}"}) for number in range(2)]
            script.append(calls(*mails, first=1000 + 2 * turn, id=f"a{turn:03}"))
            script.append(AIMessage("done", id=f"d{turn:03}"))
        self.graph = build(StrictModel(script=script), Desk().tools(), checkpointer=self.saver)

    def talk(self, turn: int) -> None:
        """One turn."""
        state = {"messages": [HumanMessage(f"go {turn:03}", id=f"h{turn:03}")]}
        config = {"configurable": {"thread_id": "1"}}
        self.seconds += spent(lambda: self.graph.invoke(state, config))

    def close(self) -> dict[str, int]:
        """Count what the database keeps, and delete it."""
        if self.path is None:
            return {}
        with closing(self.saver.conn) as database:
            tables = [database.execute(f"SELECT * FROM {t}") for t in ("checkpoints", "writes")]  # noqa: S608
            rows = [row for table in tables for row in table]
        self.path.unlink()
        size = sum(len(v) if isinstance(v, bytes) else len(str(v)) for row in rows for v in row)
        return {"rows": len(rows), "bytes": size}


def talk_in_turns(builds: Mapping[str, Build], folder: Path | None, turns: int, n: int) -> Any:
    """Let all variants talk: each turn of one beside the same turn of the others."""
    variants = {name: Bench(each, folder and folder / name, turns) for name, each in builds.items()}
    for turn in range(turns):
        for name in sorted(variants, reverse=bool((turn + n) % 2)):
            variants[name].talk(turn)
    return {name: (variant.seconds, variant.close()) for name, variant in variants.items()}


def rows(*, quick: bool) -> Iterator[Row]:
    """For each agent and variant: CPU time, rows and bytes beside the bare one."""
    turns, rounds = (2, 1) if quick else (100, 5)
    with tempfile.TemporaryDirectory() as made:
        for saver, folder in (("SqliteSaver", Path(made)), ("InMemorySaver", None)):
            for agent, builds in AGENTS.items():
                found = [talk_in_turns(builds, folder, turns, number) for number in range(rounds)]
                times = {name: [variants[name][0] for variants in found] for name in builds}
                for name in [each for each in builds if each != "bare"]:
                    what = f"{agent}, {saver}, {turns} turns: {name} / bare"
                    goal = name == "with_patching"
                    most = 1.05 if goal else None
                    yield compared(f"{what}, CPU", times, name, "bare", most=most)
                    bare, ours = found[-1]["bare"][1], found[-1][name][1]
                    for kept, slack in (("rows", 0), ("bytes", 0.001)) if folder else ():
                        yield Row(
                            f"{what}, {kept}",
                            ours[kept] / bare[kept],
                            "x{:.4f}",
                            least=1 - slack if goal else None,
                            most=1 + slack if goal else None,
                            detail=f"{bare[kept]} -> {ours[kept]}",
                        )
