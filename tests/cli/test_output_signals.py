"""What a command leaves behind when an error has ended it."""

import gc
import sys
import threading
from argparse import Namespace

from langgraph_patch.cli import output


def test_a_command_that_an_error_has_ended_is_collected_in_any_thread(monkeypatch):
    """Only the main thread may change what Ctrl-C does: elsewhere that is an error."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    left = [
        output.each_of(Namespace(command="undo", quiet=True, json=False, rate=None), [1, 2], "done")
    ]
    assert next(left[0]) == 1
    collects = threading.Thread(target=lambda: (left.clear(), gc.collect()))
    collects.start()
    collects.join()
    assert unraisable == []
