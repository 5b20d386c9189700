"""What can go wrong, as types.

    PatchError                  the root: catch this one
    |-- MessagesError           a value that should be a list of messages is not one
    |-- OptionError             an option that is none of the values that it may have
    |-- GraphError              a graph, node name or state key that cannot be patched
    |-- EvidenceError           a checkpointer failed while it was asked what had happened
    |-- RecordingError          a tool call could not be recorded
    |-- StreamError             the chunks of a stream contradict each other
    `-- ThreadError             a stored thread or its database cannot be read or repaired

Damage in a history is not an error: it is a value (a `Defect`, a `Patch`).
Each message names the value, what was expected and what to do.
"""


def brief(error: BaseException) -> str:
    """An error that others raised, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class PatchError(Exception):
    """Root of everything that langgraph-patch raises on purpose."""


class MessagesError(PatchError, TypeError):
    """A value that should be a list of messages is not one."""


class OptionError(PatchError, ValueError):
    """An option that is none of the values that it may have."""


class GraphError(PatchError, ValueError):
    """A graph, a node name or a state key that cannot be patched."""


class EvidenceError(PatchError):
    """A checkpointer failed while it was asked what had happened to a call."""


class RecordingError(PatchError):
    """A tool call could not be recorded."""


class StreamError(PatchError, ValueError):
    """The chunks of a stream contradict each other."""


class ThreadError(PatchError):
    """A stored thread, or the database that holds it, cannot be read or repaired."""
