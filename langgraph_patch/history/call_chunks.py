"""Decide which chunks of a stream belong to the same tool call.

Everything that joins the chunks of a call uses this one rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from langchain_core.messages.tool import ToolCallChunk

from langgraph_patch.history.tool_calls import text_of


def group_call_chunks(chunks: Iterable[ToolCallChunk]) -> list[list[ToolCallChunk]]:
    """The chunks of each call, in the order in which the calls began.

    A chunk continues the newest call of its index, unless it has another id: then it begins a
    call. Servers that send index 0 for every call are read correctly so. A chunk without an
    index begins a call if it has a name, or an id that the newest call does not have. Otherwise
    it continues the newest call.

    Args:
        chunks: The chunks in the order of arrival. They are not changed.
    """
    groups: list[list[ToolCallChunk]] = []
    ids: list[str] = []
    newest: dict[object, int] = {}
    for chunk in chunks:
        index, call_id = chunk.get("index"), text_of(chunk.get("id"))
        if index is not None:
            place = newest.get(index)
            begins = place is None or bool(call_id and ids[place] and call_id != ids[place])
        else:
            place = len(groups) - 1
            begins = not groups or bool(chunk.get("name") or (call_id and call_id != ids[place]))
        if place is None or begins:
            place = len(groups)
            groups.append([])
            ids.append("")
        if index is not None:
            newest[index] = place
        ids[place] = ids[place] or call_id
        groups[place].append(chunk)
    return groups
