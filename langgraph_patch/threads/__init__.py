"""Find and repair stored threads with a damaged tool-call history.

- `scan_threads` reports on all threads of a checkpointer, or of a LangGraph Server. It only reads.
- `repair_thread` repairs one thread of a checkpointer.
- `undo_repair` undoes a repair.
- `open_database` opens a database for them, so that nothing in it is executed.

They are synchronous. A service calls them in a thread: `asyncio.to_thread(repair_thread, ...)`.
What holds for all:

1. No thread stops a scan, and no code of the application is needed. A repair writes messages and
   nothing else; what would depend on the application is refused, and the reason says so.
2. A repair is checked before it is written, and read back afterwards.
3. A thread that waits for a human is not changed, unless the caller abandons the pause.
4. Nothing is lost: no message, no result, and nothing that another process writes meanwhile. The
   checkpoint before a repair stays in the thread.
"""

from langgraph_patch.threads.repair import repair_thread
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.scan import scan_threads
from langgraph_patch.threads.stores import open_database
from langgraph_patch.threads.undo import undo_repair

__all__ = [
    "ThreadRepair",
    "ThreadReport",
    "open_database",
    "repair_thread",
    "scan_threads",
    "undo_repair",
]
