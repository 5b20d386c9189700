"""Keep LangGraph threads usable when their tool-call history is damaged.

`with_patching` repairs a graph while it runs. `patch_node`, `patch_model` and
`langgraph_patch.middleware` do so at one point of it, and `patch_messages` repairs a list of
messages. `idempotency_key` names a call for the services that its tool uses.

`langgraph_patch.threads` repairs stored threads, `langgraph_patch.streaming` reads streams, and
`langgraph_patch.errors` has the exceptions.
"""

from langgraph_patch.errors import PatchError
from langgraph_patch.graph.entry import PatchNode, patch_node
from langgraph_patch.graph.idempotency import idempotency_key
from langgraph_patch.graph.model import patch_model
from langgraph_patch.graph.with_patching import with_patching
from langgraph_patch.history.patch import Patch, patch_messages, validate_messages
from langgraph_patch.history.placeholders import is_placeholder
from langgraph_patch.history.repair import Change
from langgraph_patch.history.texts import DanglingCall, set_language

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
