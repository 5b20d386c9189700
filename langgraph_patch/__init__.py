"""Keep LangGraph threads usable when their tool-call history is damaged.

`with_patching` repairs a graph while it runs. `patch_node`, `patch_model` and
`langgraph_patch.middleware` do so at one point of it, and `patch_messages` repairs a list of
messages. `idempotency_key` names a call for the services that its tool uses.

`langgraph_patch.threads` repairs stored threads, `langgraph_patch.streaming` reads streams, and
`langgraph_patch.errors` has the exceptions.

A name is imported when it is first used, so that `langgraph-patch --help` does not wait for
LangGraph.
"""

import importlib
import typing

from langgraph_patch.errors import PatchError

if typing.TYPE_CHECKING:
    from langgraph_patch.graph.entry import PatchNode, patch_node
    from langgraph_patch.graph.idempotency import idempotency_key
    from langgraph_patch.graph.model import patch_model
    from langgraph_patch.graph.with_patching import with_patching
    from langgraph_patch.history.changes import Change, Patch
    from langgraph_patch.history.findings import DanglingCall
    from langgraph_patch.history.patch import patch_messages, validate_messages
    from langgraph_patch.history.placeholders import is_placeholder
    from langgraph_patch.history.texts import set_language

__all__ = [
    "Change",
    "DanglingCall",
    "Patch",
    "PatchError",
    "PatchNode",
    "idempotency_key",
    "is_placeholder",
    "patch_messages",
    "patch_model",
    "patch_node",
    "set_language",
    "validate_messages",
    "with_patching",
]

__version__ = "0.1.0"  # the version of the distribution: hatchling reads this line

_MODULES = (
    "history.findings",
    "history.texts",
    "history.placeholders",
    "history.patch",
    "graph.idempotency",
    "graph.model",
    "graph.entry",
    "graph.with_patching",
)
"""Where these names are, in the order of what an import costs."""


_ELSEWHERE = {
    "threads": "ThreadRepair ThreadReport open_database repair_thread scan_threads undo_repair",
    "streaming": "RETRACTED_KEY UNFINISHED_KEY Checker Turn afinal_answers asplit_stream "
    "final_answers first_chunk_checker full_stream_checker merge_tool_call_chunks "
    "message_from_stream split_stream",
    "middleware": "PatchToolCallsMiddleware",
}
"""Public names of other modules, where users look for them."""


def __getattr__(name: str) -> object:
    for module in _MODULES if name in __all__ else ():
        found = vars(importlib.import_module(f"{__name__}.{module}"))
        if name in found:
            globals()[name] = found[name]
            return globals()[name]
    places = (
        f": it is in {__name__}.{p}" for p, names in _ELSEWHERE.items() if name in names.split()
    )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{next(places, '')}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
