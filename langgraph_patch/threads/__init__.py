"""Find and repair stored threads with a damaged tool-call history.

- `scan_threads` reports on all threads of a checkpointer. It only reads.
- `repair_thread` repairs one thread through the application's own graph.
- `undo_repair` undoes a repair.

Each has an asynchronous form, with an `a` before its name. Instead of a checkpointer or a graph
they take the client of a LangGraph Server, or a `LangGraphServer`. What holds for all:

1. A scan needs no code of the application, and no thread stops it.
2. A repair is checked before it is written, and read back afterwards.
3. A thread that waits for a human is not changed, unless the caller abandons the pause.
4. Nothing is lost: no message, no result, and nothing that another process writes meanwhile. The
   checkpoint before a repair stays in the thread.
"""

from langgraph_patch.threads.repair import arepair_thread, repair_thread
from langgraph_patch.threads.reports import ScanSummary, ThreadRepair, ThreadReport
from langgraph_patch.threads.scan import ascan_threads, scan_threads
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.undo import aundo_repair, undo_repair

__all__ = [
    "LangGraphServer",
    "ScanSummary",
    "ThreadRepair",
    "ThreadReport",
    "arepair_thread",
    "ascan_threads",
    "aundo_repair",
    "repair_thread",
    "scan_threads",
    "undo_repair",
]
