"""Keep LangGraph threads usable when their tool-call history is damaged.

`with_patching` repairs a graph while it runs, `patch_node` and
`langgraph_patch.middleware` do so at one point of it, `repair_thread` repairs a stored thread,
and `patch_messages` repairs a list of messages. `idempotency_key` names a call for the services
that its tool uses, and `langgraph_patch.streaming` builds messages from streams.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from langgraph_patch.errors import (
        EvidenceError,
        GraphError,
        MessagesError,
        ModelError,
        OptionError,
        PatchError,
        StreamError,
        ThreadError,
    )
    from langgraph_patch.graph.idempotency import idempotency_key
    from langgraph_patch.graph.model import patch_model
    from langgraph_patch.graph.patch_node import PatchNode, patch_node
    from langgraph_patch.graph.patching import with_patching
    from langgraph_patch.history.patch import Change, Defect, Evidence, Finding, Patch
    from langgraph_patch.history.patcher import patch_messages, validate_messages
    from langgraph_patch.history.placeholders import (
        PLACEHOLDER_KEY,
        DanglingCall,
        cancelled_text,
        is_placeholder,
        set_language,
    )
    from langgraph_patch.threads import (
        arepair_thread,
        ascan_threads,
        aundo_repair,
        repair_thread,
        scan_threads,
        undo_repair,
    )
    from langgraph_patch.threads.reports import ThreadRepair, ThreadReport

__all__ = [
    "PLACEHOLDER_KEY",
    "Change",
    "DanglingCall",
    "Defect",
    "Evidence",
    "EvidenceError",
    "Finding",
    "GraphError",
    "MessagesError",
    "ModelError",
    "OptionError",
    "Patch",
    "PatchError",
    "PatchNode",
    "StreamError",
    "ThreadError",
    "ThreadRepair",
    "ThreadReport",
    "arepair_thread",
    "ascan_threads",
    "aundo_repair",
    "cancelled_text",
    "idempotency_key",
    "is_placeholder",
    "patch_messages",
    "patch_model",
    "patch_node",
    "repair_thread",
    "scan_threads",
    "set_language",
    "undo_repair",
    "validate_messages",
    "with_patching",
]

__version__ = "0.1.0"  # the version of the distribution: hatchling reads this line

_MODULES = {
    "langgraph_patch.errors": (
        "EvidenceError",
        "GraphError",
        "MessagesError",
        "ModelError",
        "OptionError",
        "PatchError",
        "StreamError",
        "ThreadError",
    ),
    "langgraph_patch.graph.idempotency": ("idempotency_key",),
    "langgraph_patch.graph.model": ("patch_model",),
    "langgraph_patch.graph.patch_node": (
        "PatchNode",
        "patch_node",
    ),
    "langgraph_patch.graph.patching": ("with_patching",),
    "langgraph_patch.history.patch": (
        "Change",
        "Defect",
        "Evidence",
        "Finding",
        "Patch",
    ),
    "langgraph_patch.history.patcher": (
        "patch_messages",
        "validate_messages",
    ),
    "langgraph_patch.history.placeholders": (
        "PLACEHOLDER_KEY",
        "DanglingCall",
        "cancelled_text",
        "is_placeholder",
        "set_language",
    ),
    "langgraph_patch.threads": (
        "arepair_thread",
        "ascan_threads",
        "aundo_repair",
        "repair_thread",
        "scan_threads",
        "undo_repair",
    ),
    "langgraph_patch.threads.reports": (
        "ThreadRepair",
        "ThreadReport",
    ),
}
"""Where each public name is defined. It is imported when it is first used, because LangGraph takes
a second to import: the command line and the pure modules do not wait for what they do not use."""


def __getattr__(name: str) -> typing.Any:
    """Import a public name when it is first used."""
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names only."""
    return [*__all__, "__version__"]
