"""Print what happens to threads with a picture, an order of roles or an end that is refused.

As Markdown, for each state and each server: how many requests each of four turns took; in bold,
where the turn is refused without the package. `-` is a turn that is refused with it too. Needs the
integrations: `python scripts/asked_table.py [PLACE]`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.asked import STATES
from support.asked_servers import SERVERS, turns

HEAD = f"| what the thread has | {' | '.join(SERVERS)} |"


def cell(state: str, server: str, place: str) -> str:
    """Four turns of a thread, with those in bold that are refused without the package."""
    bare, patched = (
        "".join(map(str, turns(each, server, state))).replace("0", "-") for each in ("bare", place)
    )
    bold = "".join(
        f"**{one}**" if other == "-" else one for one, other in zip(patched, bare, strict=True)
    )
    return bold.replace("****", "")


def row(state: str, place: str = "create_agent") -> str:
    """One line of the table."""
    return f"| {state} | {' | '.join(cell(state, server, place) for server in SERVERS)} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    lines = [HEAD, "|---" * (len(SERVERS) + 1) + "|"]
    lines += [row(state, *sys.argv[1:]) for state in STATES]
    sys.stdout.write("\n".join(lines) + "\n")
