"""What a checkpointer recorded of calls that have no result.

When a run stops in the middle of a step, LangGraph keeps what the step's finished tasks wrote
as *pending writes* of the checkpoint that was current, and forgets them when the next message
comes in. They stay in the database, and so do older states. Here they are read back.

What counts, and nothing else does:

- **A result** is a real `ToolMessage` with the call's id, written or standing where the call
  was the only open one with that id, and had the name and arguments that it has now: in a write
  to the history, in what a task returned, in the update of a `Command`, in an older state.
  Placeholders, ours or others', never count.
- **An interrupt or an error** is that of a task that ran this one call: one `Send` per call
  (`create_agent`, `create_react_agent` v2), or `record_tool_calls` (its last attempt). A task
  that ran a whole message (a plain `ToolNode`) tells something of a call only if the message
  makes no other, no other node ran beside it, and a node made the message in the step before;
  an error, only if the node is called `tools`: another may be a middleware.
- It is over when the call was started again. And if the task ran a subgraph that was given the
  call, only a result in there counts: it may have asked or failed when the tool was through.
- A cancelled task may or may not have run, and so may one that was given an answer without
  an interrupt id after it had asked: nothing is said of them, and nothing means `unknown`.
- Of a result, an error and an interrupt of one call, the first in this order is reported.

Only the checkpoints from which the current one came are read, the namespaces of subgraphs
into which the task that made the message leads, and, where a subgraph was given the message as
its input, those of the graph that gave it. Beyond the newest 58 checkpoints, the one in
which a message appeared is found by bisection. Where that is impossible, the newest 508 (gaps
in the steps, as durability "exit" leaves them; branches that cannot be told apart) or 1858
(`DeltaChannel` state) are read, and what lies beyond them is `unknown`.

What no checkpoint tells: that a waiting call was answered *by interrupt id* (with durability
"exit": answered at all) and the run was then cancelled or killed (it reads as waiting), or that
a failed call was started again and then killed (it reads as failed); what `record_tool_calls`
wrote down by then is told. With durability "exit" a killed run leaves nothing, and a run on a
fork is told what the thread's newest branch says of the same call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.checkpoint_messages import (
    history_in,
    id_in,
    id_of,
    is_part,
    place_of,
    space_of,
    step_of,
)
from langgraph_patch.evidence.task_outcomes import told_inside
from langgraph_patch.evidence.timeline import Trail, Turn
from langgraph_patch.history.patch import Finding

_NEWEST = 8  # read first: damage is nearly always found there
_PAGE = 50
_LIGHT_PAGE = 200  # of checkpoints that do not hold the history
_BELOW = 1000  # checkpoints of subgraphs, and of those that ran beside them
_PAGES = 10  # how many pages are read if bisection is impossible
_NEAR = 8  # how near bisection comes before the rest is read as one page
_WINDOWS = 3  # how many pages are read where the message was new
_RIVALS = 4  # checkpoints of one step, each on a branch of its own, of which one is looked for
_WAIT = 1.0  # seconds for which a checkpoint that is being written is waited for
_NAP = 0.01
_ASKS = 64  # for all calls together: nobody waits for ever on a thread that is broken everywhere


@dataclass(frozen=True, slots=True)
class _Question:
    """One question to the checkpointer: which checkpoints to list, newest first."""

    config: RunnableConfig
    limit: int
    filter: dict[str, Any] | None = None
    before: RunnableConfig | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("config", "filter", "before", "limit")}

    def error(self, error: Exception) -> EvidenceError:
        place = self.config.get("configurable", {})
        return EvidenceError(
            f"Thread {place.get('thread_id')!r}: the checkpointer raised {error!r} when it was "
            f"asked to list {self.limit} checkpoints of namespace "
            f"{place.get('checkpoint_ns', 'any')!r} (filter {self.filter!r}, before "
            f"{id_of(self.before)!r}). Nothing was repaired: see to the checkpointer, or set "
            f"recover=False to repair without it."
        )


async def _listed(saver: BaseCheckpointSaver[Any], question: _Question) -> list[CheckpointTuple]:
    return [saved async for saved in saver.alist(**question.arguments)]


@dataclass(slots=True)
class Search:
    """One search: the checkpointer, the state key, and how many more questions it may ask."""

    saver: BaseCheckpointSaver[Any]
    key: str
    asks_left: int = _ASKS

    def run(self, config: RunnableConfig, turns: list[Turn]) -> IOGenerator[list[Turn]]:
        """Find what is known of all calls of `turns`, in `config`'s namespace and below."""
        if not turns:
            return turns
        trail = Trail(_config_of(config), turns, self.key)
        yield from self._start(trail, id_of(config))
        yield from self._page(trail, _PAGE)
        if trail.open_turns and not (yield from self._bisect(trail)):
            hidden = trail.oldest is not None and history_in(trail.oldest, self.key) is None
            for _ in range(_PAGES - 1):
                yield from self._page(trail, _LIGHT_PAGE if hidden else _PAGE)
        for turn in turns:
            if turn.open_ids and turn.maker:
                yield from self._follow(trail.config, turn, *turn.maker)
            yield from self._confirm(trail.config, turn)
        return turns

    def _ask(self, question: _Question) -> IOGenerator[list[CheckpointTuple]]:
        if not self.asks_left:
            return []
        self.asks_left -= 1
        return (yield from self._list(question))

    def _list(self, question: _Question) -> IOGenerator[list[CheckpointTuple]]:
        try:
            found: list[CheckpointTuple] = yield IORequest(
                lambda: list(self.saver.list(**question.arguments)),
                lambda: _listed(self.saver, question),
            )
        except Exception as error:
            raise question.error(error) from error
        return found

    def _start(self, trail: Trail, current: str | None) -> IOGenerator[None]:
        page = yield from self._ask(_Question(trail.config, _NEWEST))
        waited = 0.0
        while current and waited < _WAIT and not (page and id_in(page[0]) >= current):
            # Durability "async": the current checkpoint is being written in the background.
            waited += _NAP
            yield IORequest(lambda: time.sleep(_NAP), lambda: asyncio.sleep(_NAP))
            newest = yield from self._list(_Question(trail.config, 1))
            if newest and id_in(newest[0]) >= current:
                page = yield from self._list(_Question(trail.config, _NEWEST))
        if current and page and id_in(page[-1]) > current:
            place = {**trail.config["configurable"], "checkpoint_id": current}
            page = yield from self._ask(_Question(RunnableConfig(configurable=place), 1))
        trail.follow([saved for saved in page if current is None or id_in(saved) <= current])

    def _page(self, trail: Trail, limit: int) -> IOGenerator[None]:
        if trail.open_turns and trail.oldest and trail.goes_on:
            question = _Question(trail.config, limit, before=trail.oldest.config)
            trail.follow((yield from self._ask(question)))

    def _bisect(self, trail: Trail) -> IOGenerator[bool]:
        """Jump to where each open message appeared; False if it cannot be told."""
        bottom = trail.oldest
        if bottom is None or history_in(bottom, self.key) is None:
            return False
        probes: dict[int, list[CheckpointTuple]] = {}
        for turn in trail.open_turns:
            low, high = -2, step_of(bottom)
            while high - low > _NEAR:
                middle = (low + high) // 2
                if middle not in probes:
                    probes[middle] = yield from self._rivals(trail, middle, bottom)
                found = self._on_the_way(probes[middle], bottom, turn)
                if found is None:
                    return False
                stands = turn.stands_in(history_in(found, self.key) or [])
                low, high = (low, middle) if stands else (middle, high)
            if not (yield from self._window(trail, turn, high + _NEAR, bottom)):
                return False
        return True

    def _rivals(
        self, trail: Trail, step: int, bottom: CheckpointTuple
    ) -> IOGenerator[list[CheckpointTuple]]:
        wanted = {"step": step}
        return (yield from self._ask(_Question(trail.config, _RIVALS, wanted, bottom.config)))

    def _on_the_way(
        self, rivals: Sequence[CheckpointTuple], bottom: CheckpointTuple, turn: Turn
    ) -> CheckpointTuple | None:
        """The one of several checkpoints from which `bottom` came; None if that is uncertain."""
        whole, fit = history_in(bottom, self.key) or [], []
        for saved in rivals:
            state = history_in(saved, self.key)
            if state is None:
                return None
            stands = turn.stands_in(state)
            # What stood before the message may have been summarised since.
            since = state[place_of(state, turn.message) or 0 :] if stands else state
            if is_part(since, whole) or (not stands and len(rivals) == 1):
                fit.append(saved)
        return fit[0] if len(fit) == 1 else None

    def _window(
        self, trail: Trail, turn: Turn, top: int, bottom: CheckpointTuple
    ) -> IOGenerator[bool]:
        """Read the checkpoints below step `top`: those in which the message was new."""
        above: CheckpointTuple | None = bottom
        if top < step_of(bottom):
            found = yield from self._rivals(trail, top, bottom)
            above = self._on_the_way(found, bottom, turn)
        window = Trail(trail.config, [turn], self.key, oldest=above)
        for _ in range(_WINDOWS):
            yield from self._page(window, 3 * _NEAR)
        return above is not None

    def _follow(
        self, config: RunnableConfig, turn: Turn, saved: CheckpointTuple, task: str
    ) -> IOGenerator[None]:
        """Follow the message to where it came from: up if it was an input, else down."""
        if saved.metadata.get("source") == "input" and config["configurable"]["checkpoint_ns"]:
            yield from self._ascend(config, turn, saved)
        else:
            yield from self._descend(config, turn, saved, task)

    def _ascend(
        self, config: RunnableConfig, turn: Turn, saved: CheckpointTuple
    ) -> IOGenerator[None]:
        """Look into the graph that gave the message to this subgraph, as it was then."""
        space = config["configurable"]["checkpoint_ns"].rpartition("|")[0]
        current = saved.metadata.get("parents", {}).get(space)
        if current is not None:
            above = Turn(turn.message, turn.open_ids)
            place = {**config["configurable"], "checkpoint_ns": space, "checkpoint_id": current}
            yield from self.run(RunnableConfig(configurable=place), [above])
            # How it ended there is no news: it may be the very call in which this graph runs.
            results = {i: m for i, m in above.known.items() if isinstance(m, ToolMessage)}
            turn.known.update(results)

    def _descend(
        self, config: RunnableConfig, turn: Turn, saved: CheckpointTuple, task: str
    ) -> IOGenerator[None]:
        """Follow the task that made the message into its subgraph, if it was one.

        A handoff takes the message out of the subgraph and leaves its siblings' results there.
        """
        begun = yield from self._below(config, saved, {"step": -1})
        inner = sorted(space for space in map(space_of, begun) if space.endswith(f":{task}"))
        for space in dict.fromkeys(inner):
            below = Turn(turn.message, turn.open_ids)
            yield from self.run(_config_of(config, space), [below])
            turn.known.update(below.known)
        if not inner:
            turn.ask_only_task(self.key)

    def _below(
        self, config: RunnableConfig, saved: CheckpointTuple, more: dict[str, Any]
    ) -> IOGenerator[list[CheckpointTuple]]:
        """The checkpoints of the subgraphs that ran in a checkpoint's step."""
        here = config["configurable"]["checkpoint_ns"]
        parents = {**saved.metadata.get("parents", {}), here: id_in(saved)}
        place = {k: v for k, v in config["configurable"].items() if k != "checkpoint_ns"}
        wanted = {"parents": parents, **more}
        return (yield from self._ask(_Question(RunnableConfig(configurable=place), _BELOW, wanted)))

    def _confirm(self, config: RunnableConfig, turn: Turn) -> IOGenerator[None]:
        """Check for each claim whether its task ran subgraphs: they take precedence."""
        here = str(config["configurable"]["checkpoint_ns"])
        for call_id, claim in list(turn.standing_claims()):
            if claim.node is None or claim.is_own_interrupt(here):
                continue
            below = (yield from self._below(config, claim.saved, {})) if self.asks_left else None
            told: ToolMessage | Finding | None = None
            if below is not None and len(below) < _BELOW:
                inside = [saved for saved in below if claim.is_of(here, space_of(saved))]
                told = told_inside(inside, claim, turn.message, call_id, self.key)
                if isinstance(told, Finding) and not claim.is_certain(here, inside):
                    told = None
            turn.known.pop(call_id)
            if told is not None:
                turn.known[call_id] = told


def _config_of(config: RunnableConfig, checkpoint_ns: str | None = None) -> RunnableConfig:
    """`config` without a checkpoint, in its own namespace or another."""
    configurable = {"checkpoint_ns": "", **config.get("configurable", {})}
    configurable.pop("checkpoint_id", None)
    if checkpoint_ns is not None:
        configurable["checkpoint_ns"] = checkpoint_ns
    return RunnableConfig(configurable=configurable)
