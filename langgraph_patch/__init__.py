"""A LangGraph thread never dies of a broken tool-call history."""

from langgraph_patch.errors import (
    EvidenceError,
    GraphError,
    MessagesError,
    OptionError,
    PatchError,
    RecordingError,
    StreamError,
    ThreadError,
)
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
from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls
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
    "OptionError",
    "Patch",
    "PatchError",
    "PatchNode",
    "RecordingError",
    "StreamError",
    "ThreadError",
    "ThreadRepair",
    "ThreadReport",
    "arecord_tool_calls",
    "arepair_thread",
    "ascan_threads",
    "aundo_repair",
    "cancelled_text",
    "is_placeholder",
    "patch_messages",
    "patch_node",
    "record_tool_calls",
    "repair_thread",
    "scan_threads",
    "set_language",
    "undo_repair",
    "validate_messages",
    "with_patching",
]
