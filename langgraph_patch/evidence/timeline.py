"""The way back through a thread's checkpoints, and what is learnt of a message on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch.evidence.checkpoint_messages import (
    answer_in,
    asks_alike,
    begins_turn,
    history_in,
    id_in,
    id_of,
    is_same,
    is_shared,
    last_maker,
    maker_in,
    makes_another,
    place_of,
    result_in,
    written_in,
)
from langgraph_patch.evidence.supersteps import (
    added_in,
    is_over,
    nodes_in,
    sends_in,
    sends_version_in,
    starters_in,
)
from langgraph_patch.evidence.task_outcomes import Claim, claim_in, claim_of_only_call
from langgraph_patch.history.patch import Finding
from langgraph_patch.history.tool_calls import read_calls


class _Started(NamedTuple):
    """A node that may have started a call in a later step."""

    node: str
    version: object | None
    """That of its `Send`s; None if it was given the whole state."""
    is_over: bool
    """Whether its step ended as usual."""
    surely: bool
    """Whether it surely saw the call open."""


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
        self._note_starts(saved, call_id, key, hidden=state is None, pending=pending)

    def _note_starts(
        self, saved: CheckpointTuple, call_id: str, key: str, *, hidden: bool, pending: bool
    ) -> None:
        """Note the nodes that may have started the call in this step."""
        over = is_over(saved)
        sure = starters_in(saved, call_id, pending=pending and not hidden)
        started = {_Started(node, sent, over, surely=True) for node, sent in sure}
        if hidden:
            if begins_turn(saved, self.message, key):
                # Whoever was given the whole state after that did not see the call open.
                self._started[call_id] = {s for s in self._started[call_id] if s.surely}
            started |= {_Started(node, None, over, surely=False) for node in nodes_in(saved)}
        self._started[call_id] |= started

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
            again = {
                started.node
                for started in since
                if (started.version is None or started.version != same)
                and (started.surely or started.node in ran_all)
                # Another node that ended as usual and left no result has not run the call.
                and not (started.is_over and claim.node not in (None, started.node))
            }
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
