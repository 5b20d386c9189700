"""How long the search for one old call takes in a long thread, and how much memory."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from measuring import Row

from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls

THREAD = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
SECONDS, MEBIBYTES = 3.0, 300.0


class LongThread(BaseCheckpointSaver[Any]):
    """A thread with two messages in each checkpoint more than in the one before.

    The histories are slices of one serialised list, as a database of this thread would need many
    gigabytes. Each is deserialised when it is read, as a database does it.
    """

    def __init__(self, messages: list[BaseMessage]) -> None:
        super().__init__(serde=JsonPlusSerializer())
        self.parts = [self.serde.dumps_typed(message)[1] for message in messages]
        self.read = 0

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """The newest checkpoint; there are no subgraphs."""
        if config["configurable"]["checkpoint_ns"]:
            return None
        self.read += 1
        return self._checkpoint(len(self.parts) // 2)

    def list(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the names of the base class
        before: Any = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List the checkpoints, newest first."""
        newest = len(self.parts) // 2
        if before is not None:
            newest = int(before["configurable"]["checkpoint_id"], 16) - 1
        for step in range(newest, 0, -1)[:limit]:
            self.read += 1
            yield self._checkpoint(step)

    def _checkpoint(self, step: int) -> CheckpointTuple:
        parts = self.parts[: 2 * step]
        packed = b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)
        checkpoint: Any = {
            "v": 4,
            "id": f"{step:032x}",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": {"messages": self.serde.loads_typed(("msgpack", packed))},
            "channel_versions": {"messages": step},
            "versions_seen": {},
        }
        metadata: Any = {"step": step, "source": "loop", "parents": {}}
        parent = _config_of(step - 1) if step > 1 else None
        return CheckpointTuple(_config_of(step), checkpoint, metadata, parent, [])


def _config_of(step: int) -> Any:
    return {"configurable": {**THREAD["configurable"], "checkpoint_id": f"{step:032x}"}}


def _thread(length: int, damaged: int) -> tuple[LongThread, AIMessage]:
    """A thread of so many messages, and its message with an unanswered call."""
    text = "a sentence of an ordinary length, as people write it. " * 4
    messages: list[BaseMessage] = [
        AIMessage(text, id=f"a{n}") if n % 2 else HumanMessage(text, id=f"h{n}")
        for n in range(length)
    ]
    call = {"name": "wire", "args": {"amount": 1}, "id": "c1"}
    message = AIMessage("", id="m1", tool_calls=[call])
    messages[damaged] = message
    return LongThread(messages), message


def _search(saver: LongThread, message: AIMessage) -> None:
    run_sync(recover_evidence(saver, THREAD, [message], read_calls(message)))


def rows(*, quick: bool) -> Iterator[Row]:
    """The figures for threads of 500, 2,000 and 10,000 messages, for each age of the damage."""
    for length in (100,) if quick else (500, 2_000, 10_000):
        for turns in (1, 5, 40):
            saver, message = _thread(length, length - 2 * turns + 1)
            gc.collect()
            start = time.process_time()
            _search(saver, message)
            seconds, read = time.process_time() - start, saver.read
            tracemalloc.start()
            _search(saver, message)
            peak = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
            what = f"search of a call {turns} turns ago in {length} messages"
            detail = f"{read} checkpoints"
            yield Row(f"{what}, seconds", seconds, "{:.2f}", most=SECONDS, detail=detail)
            yield Row(f"{what}, MiB", peak, "{:.0f}", most=MEBIBYTES)
