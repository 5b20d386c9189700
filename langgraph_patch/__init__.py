"""Keep LangGraph threads usable when their tool-call history is damaged.

`with_patching` repairs a graph while it runs. `patch_node`, `patch_model` and
`PatchToolCallsMiddleware` do so at one point of it, and `patch_messages` repairs a list of
messages. `scan_threads` and `repair_thread` find and repair stored threads, `final_answers` reads
the stream of a graph. `langgraph_patch.testing` breaks threads in tests.

Every other public name can be imported from here. It is loaded from its module when it is first
used, so that `langgraph-patch --help` does not wait for LangGraph.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from langgraph_patch.errors import (
        EvidenceError,
        GraphError,
        MessagesError,
        OptionError,
        PatchError,
        StartedError,
        ThreadError,
        UnfinishedError,
    )
    from langgraph_patch.graph.with_patching import with_patching
    from langgraph_patch.history.changes import Change, Patch
    from langgraph_patch.history.fields import PLACEHOLDER_KEY
    from langgraph_patch.history.findings import DanglingCall, Evidence, Finding
    from langgraph_patch.history.forms.plain import portable_messages
    from langgraph_patch.history.patch import patch_messages, validate_messages
    from langgraph_patch.history.placeholders import Placeholder, is_placeholder
    from langgraph_patch.history.texts import set_language
    from langgraph_patch.middleware import PatchToolCallsMiddleware as PatchToolCallsMiddleware
    from langgraph_patch.model import patch_model
    from langgraph_patch.repairing.entry import PatchNode, patch_node
    from langgraph_patch.repairing.reconcile import Lookup
    from langgraph_patch.repairing.repairer import EVENT, OnPatch, Recover
    from langgraph_patch.streaming import (
        RETRACTED_KEY,
        UNFINISHED_KEY,
        Checker,
        Turn,
        afinal_answers,
        asplit_stream,
        final_answers,
        first_chunk_checker,
        full_stream_checker,
        merge_tool_call_chunks,
        message_from_stream,
        split_stream,
    )
    from langgraph_patch.threads import (
        ThreadRepair,
        ThreadReport,
        open_database,
        repair_thread,
        scan_threads,
        undo_repair,
    )
    from langgraph_patch.tools.idempotency import idempotency_key

__all__ = [  # not PatchToolCallsMiddleware: it needs an extra, and `import *` must not fail
    "EVENT", "PLACEHOLDER_KEY", "RETRACTED_KEY", "UNFINISHED_KEY", "Change", "Checker",
    "DanglingCall", "Evidence", "EvidenceError", "Finding", "GraphError", "Lookup",
    "MessagesError", "OnPatch", "OptionError", "Patch", "PatchError", "PatchNode",
    "Placeholder", "Recover", "StartedError", "ThreadError",
    "ThreadRepair", "ThreadReport", "Turn", "UnfinishedError", "afinal_answers", "asplit_stream",
    "final_answers", "first_chunk_checker", "full_stream_checker", "idempotency_key",
    "is_placeholder", "merge_tool_call_chunks", "message_from_stream", "open_database",
    "patch_messages", "patch_model", "patch_node", "portable_messages", "repair_thread",
    "scan_threads", "set_language", "split_stream", "undo_repair", "validate_messages",
    "with_patching",
]  # fmt: skip

__version__ = "0.1.0"  # the version of the distribution: hatchling reads this line

_MODULES = {
    name: module
    for module, names in {
        "errors": "EvidenceError GraphError MessagesError OptionError PatchError StartedError "
        "ThreadError UnfinishedError",
        "repairing.reconcile": "Lookup",
        "repairing.entry": "PatchNode patch_node",
        "tools.idempotency": "idempotency_key",
        "model": "patch_model",
        "repairing.repairer": "EVENT OnPatch Recover",
        "graph.with_patching": "with_patching",
        "history.changes": "Change Patch",
        "history.fields": "PLACEHOLDER_KEY",
        "history.findings": "DanglingCall Evidence Finding",
        "history.patch": "patch_messages validate_messages",
        "history.forms.plain": "portable_messages",
        "history.placeholders": "Placeholder is_placeholder",
        "history.texts": "set_language",
        "middleware": "PatchToolCallsMiddleware",
        "streaming": "RETRACTED_KEY UNFINISHED_KEY Checker Turn afinal_answers asplit_stream "
        "final_answers first_chunk_checker full_stream_checker merge_tool_call_chunks "
        "message_from_stream split_stream",
        "threads": "ThreadRepair ThreadReport open_database repair_thread scan_threads undo_repair",
    }.items()
    for name in names.split()
}
"""Where each public name is."""

if not typing.TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        except (AttributeError, ImportError) as error:
            importlib.import_module(f"{__name__}._langgraph.details").explain(name, error)
            raise
        globals()[name] = getattr(module, name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES} - {"importlib", "typing"})
