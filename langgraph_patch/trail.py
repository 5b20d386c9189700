"""The way back through a thread's checkpoints, and what is learnt of a message on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.types import Interrupt

from langgraph_patch.calls import read_calls
from langgraph_patch.changes import Finding
from langgraph_patch.host import RETURN
from langgraph_patch.recorded_call import MARK
from langgraph_patch.records import (
    added_in,
    answer_in,
    asks_alike,
    finding_of,
    history_in,
    id_in,
    id_of,
    is_given,
    is_same,
    is_shared,
    last_maker,
    maker_in,
    makes_another,
    marked_tasks,
    nodes_in,
    place_of,
    result_in,
    sends_in,
    sends_version_in,
    starters_in,
    task_of_send,
    written_in,
)

_TOOLS = "tools"  # what LangGraph calls the node that runs tools; another may run anything

_Started: TypeAlias = tuple[str, bool, object | None]
"""A node that was started, whether it surely saw the call open, the version of its `Send`."""


# --- what a task says of its call --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """What a task says of the one call that it ran.

    Attributes:
        finding: What it says.
        saved: The checkpoint of its step.
        task: Its id.
        node: Its node; None if `record_tool_calls` made it, which runs nothing but the tool.
    """

    finding: Finding
    saved: CheckpointTuple
    task: str
    node: str | None

    def is_own_interrupt(self, space: str) -> bool:
        """Whether the task asked by itself; LangGraph names an interrupt after its place."""
        place = f"{space}|{self.node}:{self.task}".removeprefix("|")
        own = Interrupt.from_ns(None, place).id
        asked = [
            interrupt
            for by, channel, value in self.saved.pending_writes or ()
            for interrupt in (value if isinstance(value, list | tuple) else [value])
            if (by, channel) == (self.task, INTERRUPT)
        ]
        return self.finding.cause == "awaiting_input" and all(
            isinstance(interrupt, Interrupt) and interrupt.id == own for interrupt in asked
        )

    def is_certain(self, space: str, inside: Sequence[CheckpointTuple]) -> bool:
        """Whether it is of the call, although the task did not ask by itself."""
        if self.finding.cause == "failed":  # else it may be a middleware's
            return self.node == _TOOLS or bool(sends_in(self.saved))
        unnamed = bool(space) and any(":" not in part for part in space.split("|"))
        return bool(inside) or unnamed  # else a subgraph asked that keeps nothing

    def is_of(self, space: str, inner: str) -> bool:
        """Whether `inner`, a namespace below `space`, may be that of a subgraph of the task."""
        first = inner.removeprefix(f"{space}|").partition("|")[0]
        return first.endswith(f":{self.task}") or ":" not in first  # it keeps its state over runs


def claim_in(
    saved: CheckpointTuple, message: AIMessage, call_id: str, *, pending: bool
) -> Claim | None:
    """What the tasks say that ran this one call; an error before an interrupt."""
    ran: list[tuple[str, str | None]] = []
    if pending:
        ran += [(task, None) for task in marked_tasks(saved, call_id)]
    if sent := task_of_send(saved, message, call_id):
        ran.append(sent)
    claims = [
        Claim(finding, saved, task, node)
        for task, node in ran
        if (finding := finding_of(saved, task)) is not None
    ]
    return max(claims, key=lambda claim: claim.finding.cause == "failed", default=None)


def claim_of_only_call(
    message: AIMessage, step: CheckpointTuple, made: CheckpointTuple, maker: str, key: str
) -> Claim | None:
    """What a task that was given the whole state says, where `message` makes a single call.

    It ran in `step`, the oldest that has the message, which `maker` made in the step `made`.
    """
    # After an input comes the model or the tools: nobody can tell which of them ended so.
    if id_of(step.parent_config) != id_in(made) or made.metadata.get("source") == "input":
        return None
    nodes, writes = nodes_in(step), step.pending_writes or ()
    ended = {task for task, channel, _ in writes if channel in (INTERRUPT, ERROR)}
    recorded = any(channel in (MARK, RETURN) for _, channel, _ in writes)
    # A task that brought results along with the message has run its tools already.
    ran = any(
        isinstance(stored, ToolMessage)
        for task, held in written_in(made, key)
        for stored in held[(place_of(held, message) or 0) :]
        if task == maker
    )
    # A node runs all calls of a message, also those that a client has answered meanwhile.
    alone = len(read_calls(message)) == len(nodes) == len(ended) == 1
    if not alone or sends_in(step) or recorded or ran:
        return None
    finding = finding_of(step, task := ended.pop())
    return Claim(finding, step, task, nodes.pop()) if finding else None


# --- what is learnt of a message ---------------------------------------------------------


@dataclass(slots=True, eq=False)
class Turn:
    """The calls of one message, and what is known of them so far.

    Checkpoints are shown to it from newer to older, until the one that is older than the
    message.
    """

    message: AIMessage
    ids: Sequence[str]
    known: dict[str, ToolMessage | Finding] = field(default_factory=dict)
    first: CheckpointTuple | None = None  # the oldest one seen that has the message
    maker: tuple[CheckpointTuple, str] | None = None  # where and by which task it was made
    closed: bool = False
    _edited: set[str] = field(default_factory=set)  # what is older is of another call
    _claims: dict[str, tuple[Claim, frozenset[_Started]]] = field(default_factory=dict)
    _started: dict[str, set[_Started]] = field(default_factory=lambda: defaultdict(set))
    _since: dict[str, frozenset[_Started]] = field(default_factory=dict)  # newer than `first`

    @property
    def open_ids(self) -> list[str]:
        """The calls of which nothing is known yet."""
        return [call_id for call_id in self.ids if call_id not in self.known]

    def see(self, saved: CheckpointTuple, key: str) -> None:
        """Read one checkpoint that is older than those seen before."""
        state = history_in(saved, key)
        if state is not None and not self.stands_in(state):
            self._close(saved, maker_in(saved, self.message, key, anew=False), key)
            return
        if state is None and (maker := maker_in(saved, self.message, key, anew=True)):
            self._close(saved, maker, key)
            self._forget_doubtful(saved, maker, key)
            return
        self.first = saved
        for call_id in self.ids:
            self._since[call_id] = frozenset(self._started[call_id])
            if call_id not in self._edited:
                self._see_call(saved, state, call_id, key)
        if state is not None and all(
            i in self._edited or isinstance(self.known.get(i), ToolMessage) for i in self.ids
        ):
            self.closed = True

    def stands_in(self, state: Sequence[BaseMessage]) -> bool:
        """Whether the message stands in a history, with any of its calls as it is now."""
        place = place_of(state, self.message)
        return place is not None and any(
            asks_alike(state[place], self.message, call_id) for call_id in self.ids
        )

    def _see_call(
        self, saved: CheckpointTuple, state: Sequence[BaseMessage] | None, call_id: str, key: str
    ) -> None:
        pending = state is None
        if state is not None:
            place = last_maker(state, call_id)
            if place is None or not is_same(state[place], self.message):
                return  # the id has been used again since
            if not asks_alike(state[place], self.message, call_id):
                self._edited.add(call_id)
                return
            if is_shared(state[:place], call_id):
                return  # whose result it is cannot be told
            self._learn(call_id, result_in(state[place + 1 :], call_id))
            pending = all(isinstance(after, ToolMessage) for after in state[place + 1 :])
        elif makes_another(saved, self.message, call_id, key):
            for seen in (self.known, self._claims, self._started, self._since):
                seen.pop(call_id, None)  # it is of that later message
        # What a task returned is of the turn that was open: a node may have calls of its own.
        for _, written in written_in(saved, key, returned=pending):
            self._learn(call_id, answer_in(written, self.message, call_id))
        if claim := claim_in(saved, self.message, call_id, pending=pending):
            self._note(call_id, claim)
        sure = starters_in(saved, call_id, pending=state is not None and pending)
        self._started[call_id] |= {(node, True, version) for node, version in sure}
        if state is None:
            self._started[call_id] |= {(node, False, None) for node in nodes_in(saved)}

    def _close(self, saved: CheckpointTuple, task: str | None, key: str) -> None:
        self.closed = True
        if task is None:
            return
        self.maker = (saved, task)
        for writer, written in written_in(saved, key):
            for call_id in self.ids if writer == task else ():
                if place_of(written, self.message) is not None:
                    self._learn(call_id, answer_in(written, self.message, call_id))

    def _forget_doubtful(self, saved: CheckpointTuple, task: str, key: str) -> None:
        """Forget what may be another call's, where no state says which call was the last."""
        for writer, written in written_in(saved, key):
            place = place_of(written, self.message) if writer == task else None
            for call_id in self.ids:
                if place is None:
                    doubtful = last_maker(written, call_id) is not None
                else:
                    alike = asks_alike(written[place], self.message, call_id)
                    doubtful = not alike or is_shared(written[:place], call_id)
                if doubtful:
                    self.known.pop(call_id, None)

    def _learn(self, call_id: str, result: ToolMessage | None) -> None:
        """Keep the newest result; it counts more than how a task ended."""
        if result is not None and not isinstance(self.known.get(call_id), ToolMessage):
            self.known[call_id] = result

    # --- what tasks claim ----------------------------------------------------------------

    def ask_only_task(self, key: str) -> None:
        """Learn of the only call what the task says that was given the whole state."""
        if self.first is None or self.maker is None or len(self.open_ids) != 1:
            return
        if claim := claim_of_only_call(self.message, self.first, *self.maker, key):
            self._note(self.open_ids[0], claim)

    def _note(self, call_id: str, claim: Claim) -> None:
        """Keep the newest claim: how a call ended before it was started again is no news."""
        if call_id not in self.known and call_id not in self._claims:
            self.known[call_id] = claim.finding
            self._claims[call_id] = claim, self._since.get(call_id, frozenset())

    def standing_claims(self) -> Iterator[tuple[str, Claim]]:
        """What is claimed of calls without a result. What is over is forgotten."""
        for call_id, (claim, since) in self._claims.items():
            if self.known.get(call_id) is not claim.finding:
                continue
            ran_all = set() if sends_in(claim.saved) else nodes_in(claim.saved)
            same = sends_version_in(claim.saved)  # carried along, as its node is not there
            newer = [(node, sure) for node, sure, sent in since if sent is None or sent != same]
            again = {node for node, sure in newer if sure or node in ran_all}
            if (again | added_in(claim.saved)) - self._makers():
                del self.known[call_id]
            else:
                yield call_id, claim

    def _makers(self) -> set[str]:
        """The node that made the message, which is not the one that runs its calls."""
        if self.maker is None or self.first is None:
            return set()
        made, then = self.maker[0], self.first
        ran = then.metadata.get("source") == "loop" and id_of(then.parent_config) == id_in(made)
        nodes = nodes_in(made) if ran and not sends_in(made) else set()
        return nodes if len(nodes) == 1 else set()


def told_inside(
    inside: Sequence[CheckpointTuple], claim: Claim, message: AIMessage, call_id: str, key: str
) -> ToolMessage | Finding | None:
    """What is known of a call whose task ran subgraphs, of which `inside` is all.

    A subgraph that was given the call may have run it, and asked or failed in a later node.
    One that was not is a part of the tool, which is not through.
    """
    held = [history_in(saved, key) or [] for saved in inside]
    held += [written for saved in inside for _, written in written_in(saved, key)]
    places = [(messages, last_maker(messages, call_id)) for messages in held]
    if all(place is None or is_same(messages[place], message) for messages, place in places):
        for messages in held:
            if result := answer_in(messages, message, call_id):
                return result
    stored = [(saved.checkpoint["channel_values"], saved.pending_writes) for saved in inside]
    return None if is_given(stored, call_id) else claim.finding


# --- the way ------------------------------------------------------------------------------


def turns_of(calls: Sequence[tuple[AIMessage, str]]) -> list[Turn]:
    """Group calls by message; without those whose id does not tell them apart."""
    turns: dict[int, Turn] = {}
    keys = Counter((message.id, call_id) for message, call_id in calls)
    for message, call_id in calls:
        twice = sum(call.id == call_id for call in read_calls(message)) > 1
        if call_id and not twice and keys[message.id, call_id] == 1:
            turn = turns.setdefault(id(message), Turn(message, []))
            turn.ids = [*turn.ids, call_id]
    return list(turns.values())


@dataclass(slots=True)
class Trail:
    """The way back from one checkpoint to those it came from. Forks lie beside it."""

    config: RunnableConfig
    turns: Sequence[Turn]
    key: str
    oldest: CheckpointTuple | None = None
    goes_on: bool = True

    @property
    def open_turns(self) -> list[Turn]:
        """The turns that want to see still older checkpoints."""
        return [turn for turn in self.turns if not turn.closed]

    def follow(self, page: Sequence[CheckpointTuple]) -> None:
        """Show to the open turns what of the next older checkpoints lies on the way."""
        for saved in page:
            if self.oldest is None or id_in(saved) == id_of(self.oldest.parent_config):
                self.oldest = saved
                for turn in self.open_turns:
                    turn.see(saved, self.key)
        parent = id_of(self.oldest.parent_config) if self.oldest else None
        self.goes_on = bool(page) and parent is not None and parent < id_in(page[-1])
