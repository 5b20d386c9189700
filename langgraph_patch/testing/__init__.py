"""Test your own graph: a scripted model that is as strict as a provider, and five ways to break it.

    StrictModel    says its script, and refuses a history that a provider would refuse
    calls          a message of a model that calls tools
    check_request  why a provider would refuse a history, as an error
    pause          a human is asked
    fail           a tool raises an error
    kill           the process dies when a tool has done its work
    cut            the stream of the model ends inside the arguments of a call
    refuse         the model says nothing, and its provider refuses the history from then on

A break is a context manager around one run of the graph, synchronous or not. What it leaves in the
thread is what the same event leaves in production; its docstring says what that is. No test runner
is needed. The next message of a patched graph goes on, and its model reads what was recorded.
"""

from langgraph_patch.testing.breaks import cut, fail, kill, pause, refuse
from langgraph_patch.testing.model import RefusedError, StrictModel, calls, check_request

__all__ = [
    "RefusedError",
    "StrictModel",
    "calls",
    "check_request",
    "cut",
    "fail",
    "kill",
    "pause",
    "refuse",
]
