"""Find and repair stored threads with a damaged tool-call history.

- `scan_threads` reports on all threads of a checkpointer. It only reads.
- `repair_thread` repairs one thread.
- `undo_repair` undoes a repair.

Each has an asynchronous form, with an `a` before its name. They take a checkpointer, the client of
a LangGraph Server, or a `LangGraphServer`. What holds for all:

1. No thread stops a scan, and neither a scan nor a repair needs code of the application. A repair
   that depends on it is refused, and says so.
2. A repair is checked before it is written, and read back afterwards.
3. A thread that waits for a human is not changed, unless the caller abandons the pause.
4. Nothing is lost: no message, no result, and nothing that another process writes meanwhile. The
   checkpoint before a repair stays in the thread.
"""

from langgraph_patch.threads.repair import arepair_thread, repair_thread
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.scan import ascan_threads, scan_threads
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.undo import aundo_repair, undo_repair

__all__ = [
    "LangGraphServer",
    "ThreadRepair",
    "ThreadReport",
    "arepair_thread",
    "ascan_threads",
    "aundo_repair",
    "repair_thread",
    "scan_threads",
    "undo_repair",
]
