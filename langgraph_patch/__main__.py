"""`python -m langgraph_patch` is `langgraph-patch`."""

import sys

from langgraph_patch.cli import main

if __name__ == "__main__":
    sys.exit(main())
