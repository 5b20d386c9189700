"""The script that prints what can be done with each checkpointer."""

import subprocess
import sys

from support.paths import ENVIRONMENT, TESTS


def test_langgraphs_own_checkpointers_can_do_everything():
    """Those that need no server; the others are in the documentation."""
    command = [sys.executable, "-W", "ignore", TESTS / "saver_table.py"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True, text=True)  # noqa: S603 - our own script
    rows = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[2:] for line in done.stdout.splitlines()
    }
    assert [cell.strip("| ") for cell in rows["SqliteSaver"]] == ["yes"] * 4
    *others, undo = [cell.strip("| ") for cell in rows["InMemorySaver"]]
    assert others == ["yes"] * 3
    assert "cannot delete single checkpoints" in undo
    assert [cell.strip("| ") for cell in rows["PostgresSaver"]] == ["no URI"] * 4
