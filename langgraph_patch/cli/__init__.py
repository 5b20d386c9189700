"""The command line: `langgraph-patch`."""

from langgraph_patch.cli.main import main

__all__ = ["main"]
