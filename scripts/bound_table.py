"""Print what happens to threads of a model whose thinking is bound to what was sent before it.

Each case, bare and with `with_patching`: how many requests each of four turns took; `-` is a turn
that was refused. Needs the integrations (extra `test`): `python scripts/bound_table.py`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from langgraph_patch import with_patching
from support.message_rules import CASES, turns

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for title, demands in (("bound", False), ("demanded in the turn that runs", True)):
        sys.stdout.write(f"| thinking is {title} | bare | patched |\n|---|---|---|\n")
        for case in CASES:
            counts = [turns(case, patch, demands=demands) for patch in (lambda g: g, with_patching)]
            bare, patched = ("".join(map(str, row)).replace("0", "-") for row in counts)
            sys.stdout.write(f"| {case} | {bare} | {patched} |\n")
        sys.stdout.write("\n")
