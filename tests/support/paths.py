"""Where the tests are, and the environment of their child processes."""

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SCRIPTS = ROOT / "scripts"

_PATH = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))

ENVIRONMENT = {**os.environ, "PYTHONPATH": _PATH}
"""The environment of a child process that imports from `support`."""
