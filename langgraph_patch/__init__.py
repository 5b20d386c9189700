"""A LangGraph thread never dies of a broken tool-call history."""

from langgraph_patch.changes import Change, Defect, Evidence, Finding, Patch
from langgraph_patch.errors import (
    EvidenceError,
    GraphError,
    MessagesError,
    OptionError,
    PatchError,
)
from langgraph_patch.graph import with_patching
from langgraph_patch.messages import patch_messages, validate_messages
from langgraph_patch.node import PatchNode, patch_node
from langgraph_patch.placeholders import (
    PLACEHOLDER_KEY,
    DanglingCall,
    cancelled_text,
    is_placeholder,
    set_language,
)

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
    "cancelled_text",
    "is_placeholder",
    "patch_messages",
    "patch_node",
    "set_language",
    "validate_messages",
    "with_patching",
]
