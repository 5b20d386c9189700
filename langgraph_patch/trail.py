"""The way back through a thread's checkpoints, and what is learnt of a message on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch.changes import Finding
from langgraph_patch.records import (
    answer_in,
    finding_in,
    history_in,
    id_in,
    id_of,
    is_same,
    last_maker,
    maker_in,
    makes_another,
    place_of,
    result_in,
    weight_of,
    written_in,
)


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

    @property
    def open_ids(self) -> list[str]:
        """The calls of which nothing is known yet."""
        return [call_id for call_id in self.ids if call_id not in self.known]

    def see(self, saved: CheckpointTuple, key: str) -> None:
        """Read one checkpoint that is older than those seen before."""
        state = history_in(saved, key)
        if state is not None and place_of(state, self.message) is None:
            self._close(saved, maker_in(saved, self.message, key, anew=False), key)
            return
        if state is None and (maker := maker_in(saved, self.message, key, anew=True)):
            self._close(saved, maker, key)
            return
        self.first = saved
        for call_id in self.ids:
            if state is not None:
                place = last_maker(state, call_id)
                if place is None or not is_same(state[place], self.message):
                    continue  # the id has been used again since
                self._learn(call_id, result_in(state[place + 1 :], call_id))
            elif makes_another(saved, self.message, call_id, key):
                self.known.pop(call_id, None)  # what was seen so far is of that later message
            for _, written in written_in(saved, key):
                self._learn(call_id, answer_in(written, self.message, call_id))
            self._learn(call_id, finding_in(saved, call_id))
        if state is not None and all(_is_result(self.known.get(i)) for i in self.ids):
            self.closed = True

    def _close(self, saved: CheckpointTuple, task: str | None, key: str) -> None:
        self.closed = True
        if task is None:
            return
        self.maker = (saved, task)
        for writer, written in written_in(saved, key):
            for call_id in self.ids if writer == task else ():
                if place_of(written, self.message) is not None:
                    self._learn(call_id, answer_in(written, self.message, call_id))

    def _learn(self, call_id: str, news: ToolMessage | Finding | None) -> None:
        """Keep the newest, but a result before an error before an interrupt."""
        if weight_of(news) > weight_of(self.known.get(call_id)) and news is not None:
            self.known[call_id] = news


def _is_result(known: object) -> bool:
    return isinstance(known, ToolMessage)


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
