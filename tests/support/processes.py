"""A process of its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any


def forked(act: Callable[[], Any]) -> int:
    """The id of a process of its own, which has imported all that this one has, and acts."""
    with warnings.catch_warnings(action="ignore"):  # of the threads of this process
        process = os.fork()
    if not process:
        try:
            act()
        finally:
            os._exit(0)
    return process
