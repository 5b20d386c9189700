"""Find and repair stored threads with a damaged tool-call history.

- `scan_threads` reports on all threads of a checkpointer, or of a LangGraph Server. It only reads.
- `repair_thread` repairs one thread of a checkpointer.
- `undo_repair` undoes a repair.

They are synchronous. A service calls them in a thread: `asyncio.to_thread(repair_thread, ...)`.
What holds for all:

1. No thread stops a scan, and no code of the application is needed. A repair writes messages and
   nothing else; what would depend on the application is refused, and the reason says so.
2. A repair is checked before it is written, and read back afterwards.
3. A thread that waits for a human is not changed, unless the caller abandons the pause.
4. Nothing is lost: no message, no result, and nothing that another process writes meanwhile. The
   checkpoint before a repair stays in the thread.
"""

from typing import NoReturn

from langgraph_patch.errors import RemovedError
from langgraph_patch.threads.repair import repair_thread
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.scan import scan_threads
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.undo import undo_repair

__all__ = [
    "LangGraphServer",
    "ThreadRepair",
    "ThreadReport",
    "repair_thread",
    "scan_threads",
    "undo_repair",
]

_ASYNCHRONOUS = {f"a{name}": name for name in ("repair_thread", "scan_threads", "undo_repair")}


def __getattr__(name: str) -> NoReturn:
    # An AttributeError would be replaced by "cannot import name ..." in an import.
    if name in _ASYNCHRONOUS:
        own = _ASYNCHRONOUS[name]
        call = "lambda: [*scan_threads(saver)]" if own == "scan_threads" else f"{own}, saver, ..."
        raise RemovedError(
            f"langgraph_patch.threads has no {name}: open the database with a synchronous "
            f"checkpointer (SqliteSaver, PostgresSaver), and call {own} in a thread: "
            f"await asyncio.to_thread({call})."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
