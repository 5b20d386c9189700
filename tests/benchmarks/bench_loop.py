"""What patching costs a healthy thread: a ReAct loop of 100 turns, bare and patched.

Every variant of an agent runs the same script into a database of its own, turn beside turn. CPU
time is the median of the rounds' ratios; rows and bytes are all that the checkpointer keeps.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware as Deep
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from measuring import Row, Times, ratio, spent, spread

from langgraph_patch import patch_node, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware as Ours
from support.agents import KINDS, Tools, healthy_script, human, stored, thread
from support.strict import StrictModel

Build = Callable[..., Any]


def hand_placed(model: StrictModel, tools: Any, *, checkpointer: Any) -> Any:
    """The agent of LangGraph's tutorial, with `patch_node` before the model in every step."""
    builder = StateGraph(MessagesState)
    builder.add_node("patch_tool_calls", patch_node)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "patch_tool_calls")
    builder.add_edge("patch_tool_calls", "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "patch_tool_calls")
    return builder.compile(checkpointer=checkpointer)


def patched(build: Build) -> Build:
    """The same agent, patched."""
    return lambda *args, **options: with_patching(build(*args, **options))


def _kind(name: str) -> Build:
    return next(kind.build for kind in KINDS if kind.name == name)


AGENTS: Mapping[str, Mapping[str, Build]] = {
    "hand-built agent": {
        "bare": _kind("hand_built"),
        "with_patching": patched(_kind("hand_built")),
        "patch_node by hand": hand_placed,
    },
    "create_react_agent": {
        "bare": _kind("react_v2"),
        "with_patching": patched(_kind("react_v2")),
    },
    "create_agent": {
        "bare": create_agent,
        "with_patching": patched(create_agent),
        "our middleware": partial(create_agent, middleware=[Ours()]),
        "deepagents' middleware": partial(create_agent, middleware=[Deep()]),
    },
}


class Bench:
    """One thread that a variant of an agent talks in, over one kind of checkpointer.

    Attributes:
        seconds: The CPU time of its turns.
        rows: How many rows they left.
        bytes: How many bytes those hold.
    """

    def __init__(self, build: Build, path: Path | None, turns: int) -> None:
        self._path = path
        self._opened = ExitStack()
        self._saver: Any = InMemorySaver()
        if path is not None:
            opening = SqliteSaver.from_conn_string(str(path))
            self._saver = self._opened.enter_context(opening)
        model = StrictModel(script=list(healthy_script(turns)))
        self._graph = build(model, Tools().tools(), checkpointer=self._saver)
        self.seconds = 0.0
        self.rows = self.bytes = 0

    def talk(self, turn: int) -> None:
        """One turn."""
        message = human(f"go {turn:03}", f"h{turn:03}")
        self.seconds += spent(lambda: self._graph.invoke({"messages": [message]}, thread()))

    def close(self) -> None:
        """Count what was kept, and delete it."""
        self._opened.close()
        if self._path is None:
            self.rows, self.bytes = kept(self._saver)
            return
        in_database = stored(self._path)
        self.rows, self.bytes = sum(in_database["rows"].values()), in_database["bytes"]
        self._path.unlink()


def talk_in_turns(
    builds: Mapping[str, Build], folder: Path | None, turns: int, number: int
) -> dict[str, Bench]:
    """Let all variants talk: each turn of one beside the same turn of the others."""
    variants = {
        name: Bench(build, folder and folder / name, turns) for name, build in builds.items()
    }
    gc.freeze()  # else each collection between two turns would go through all that is imported
    for turn in range(turns):
        for name in sorted(variants, reverse=bool((turn + number) % 2)):
            variants[name].talk(turn)
    gc.unfreeze()
    for variant in variants.values():
        variant.close()
    return variants


def kept(saver: InMemorySaver) -> tuple[int, int]:
    """The rows of a saver in memory, and the bytes of what they hold."""
    values = [
        *saver.blobs.values(),
        *(v for writes in saver.writes.values() for _, _, v, _ in writes.values()),
        *(
            part
            for spaces in saver.storage.values()
            for saved in spaces.values()
            for checkpoint, metadata, _ in saved.values()
            for part in (checkpoint, metadata)
        ),
    ]
    return len(values), sum(len(data) for _, data in values)


def rows(*, quick: bool) -> Iterator[Row]:
    """For each checkpointer, agent and variant: CPU time, rows and bytes beside the bare one."""
    turns, rounds = (2, 1) if quick else (100, 5)
    with tempfile.TemporaryDirectory() as made:
        for saver, folder in (("SqliteSaver", Path(made)), ("InMemorySaver", None)):
            for agent, builds in AGENTS.items():
                found = [talk_in_turns(builds, folder, turns, number) for number in range(rounds)]
                times = {name: [variants[name].seconds for variants in found] for name in builds}
                for name in builds:
                    if name != "bare":
                        what = f"{agent}, {saver}, {turns} turns: {name} / bare"
                        yield from _compared(what, name, found[-1], times)


def _compared(what: str, name: str, variants: Mapping[str, Bench], times: Times) -> Iterator[Row]:
    ours, bare = variants[name], variants["bare"]
    goal = name == "with_patching"
    yield Row(
        f"{what}, CPU",
        ratio(times, name, "bare"),
        most=1.05 if goal else None,
        detail=spread(times, name, "bare"),
    )
    yield Row(
        f"{what}, rows",
        ours.rows / bare.rows,
        least=1 if goal else None,
        most=1 if goal else None,
        detail=f"{bare.rows} -> {ours.rows}",
    )
    yield Row(
        f"{what}, bytes",
        ours.bytes / bare.bytes,
        "x{:.4f}",
        least=0.999 if goal else None,
        most=1.001 if goal else None,
        detail=f"{bare.bytes} -> {ours.bytes}",
    )
