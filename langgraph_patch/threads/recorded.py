"""What the checkpoints of a stored thread recorded about the calls without a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.history.pairing import Reading


def find_recorded(
    saver: Any, config: RunnableConfig, reading: Reading, messages_key: str
) -> IOGenerator[Recovery]:
    """Search the checkpoints of a thread, also for calls whose placeholder is final.

    Such a placeholder gives way only to what states more: a recorded result, or a cause for an
    unknown one.

    Args:
        saver: The checkpointer.
        config: The checkpoint that has the history.
        reading: The history.
        messages_key: Its state key.

    Raises:
        EvidenceError: If the checkpointer raises.
    """
    recovery = yield from recover_evidence(
        saver,
        config,
        reading.messages,
        reading.without_result,
        messages_key=messages_key,
        required=True,
    )
    # The repair ends the pause that was found.
    evidence = {
        key: replace(found, detail=None) if found.detail == "paused" else found
        for key, found in recovery.evidence.items()
    }
    return replace(recovery, evidence=evidence)
