"""How long the search for one old call takes in a long thread, and how much memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from measuring import Row, history, spent

from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls

SECONDS, MEBIBYTES = 3.0, 300.0


def _config_of(step: int) -> Any:
    names = {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": f"{step:032x}"}
    return {"configurable": names}


class LongThread(BaseCheckpointSaver[Any]):
    """A thread with two messages more in each checkpoint: slices of one serialised list."""

    def __init__(self, messages: list[BaseMessage]) -> None:
        super().__init__(serde=JsonPlusSerializer())
        self.parts = [self.serde.dumps_typed(message)[1] for message in messages]
        self.read = 0

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """The checkpoint that is named, or the newest; there are no subgraphs."""
        named = config["configurable"]
        step = int(named.get("checkpoint_id", f"{len(self.parts) // 2:x}"), 16)
        return None if named["checkpoint_ns"] else self._checkpoint(step)

    def _checkpoint(self, step: int) -> CheckpointTuple:
        self.read += 1
        parts = self.parts[: 2 * step]
        packed = b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)
        messages = self.serde.loads_typed(("msgpack", packed))
        checkpoint: Any = {**empty_checkpoint(), "id": f"{step:032x}"}
        checkpoint |= {
            "channel_values": {"messages": messages},
            "channel_versions": {"messages": step},
        }
        metadata: Any = {"step": step, "source": "loop", "parents": {}}
        parent = _config_of(step - 1) if step > 1 else None
        return CheckpointTuple(_config_of(step), checkpoint, metadata, parent, [])


def rows(*, quick: bool) -> Iterator[Row]:
    """The figures for threads of 500, 2,000 and 10,000 messages, for each age of the damage."""
    call = {"name": "wire", "args": {"amount": 1}, "id": "open"}
    message = AIMessage("", id="m1", tool_calls=[call])
    for length in (100,) if quick else (500, 2_000, 10_000):
        for turns in (1, 5, 40):
            messages = history(length // 5)
            messages[length - 2 * turns + 1] = message
            saver = LongThread(messages)

            def search(saver: LongThread = saver) -> None:
                run_sync(recover_evidence(saver, Address("1"), [message], read_calls(message)))

            seconds, read = spent(search), saver.read
            tracemalloc.start()
            search()
            peak = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
            what = f"search of a call {turns} supersteps ago in {length} messages"
            detail = f"{read} checkpoints"
            yield Row(f"{what}, seconds", seconds, "{:.2f}", most=SECONDS, detail=detail)
            yield Row(f"{what}, MiB", peak, "{:.0f}", most=MEBIBYTES)
