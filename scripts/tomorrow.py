"""Print what becomes of patched graphs if LangGraph renames a private detail, as Markdown.

    python scripts/tomorrow.py                       all details of `langgraph_patch._langgraph`
    python scripts/tomorrow.py __pregel_read defer   some of them
    python scripts/tomorrow.py --told                and what a user reads

Each detail is renamed everywhere in a copy of the LangGraph that is installed, which so works
without us. One process plays all scenes with the copy: each is `right`, an `error` that names the
version of LangGraph, `poorer` behind a WARNING that names it, or **wrong**; then the exit code is
1. The first row is LangGraph as it is: what a new one broke is said in seconds.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph.version import __version__

from langgraph_patch._langgraph.details import table

INSTALLED = f"LangGraph {__version__}"

SCENES = Path(__file__).with_name("scenes.py")
SECONDS = 100
"""How long all scenes may take with one detail."""

# --- a copy of LangGraph ---------------------------------------------------------------------

TO = "_of_tomorrow"
"""What a new name ends with."""

PLACES: Mapping[str, str] = {
    "branch:to:": r"\bbranch:to(?=:)",
    "join:": r"(?<=f\")join(?=:\{)",
    "resume": r"(?<=scratchpad\.)resume\b|(?<=^    )resume(?=: list)|(?<=^        )resume(?==task)",
    "path": r"(?<=self\.)path(?=\.a?invoke)|(?<=^    )path(?=: Runnable)|(?<=cls\()path(?==)",
}
"""What is replaced, where a name is neither a text nor that of an attribute."""

PARAMETERS = {
    "cache_policy", "config", "defer", "ends", "error_handler", "input_schema",
    "interrupt_before", "nodes", "operator", "output_schema", "proc", "retry_policy",
    "runnable", "state_schema", "steps", "step_timeout", "stream_eager", "stream_mode",
    "writes",
}  # fmt: skip
"""Names of attributes that are also those of parameters, which keep it."""

RECORDS = {
    "BranchSpec", "cls", "PregelExecutableTask", "PregelScratchpad", "PregelTaskWrites",
    "StateNodeSpec", "_NodeDefaults", "_replace", "replace",
}  # fmt: skip
"""Classes whose parameters are their fields, and functions that copy an object of one."""


def renamed(source: str, name: str) -> str:
    """A module of LangGraph in which a detail has another name."""
    if name in PLACES:
        return re.sub(PLACES[name], rf"\g<0>{TO}", source, flags=re.MULTILINE)
    if name in PARAMETERS:
        return with_attribute(source, name) if name in source else source
    return re.sub(rf"(?<![\w.-]){re.escape(name)}\b|(?<=\.){re.escape(name)}\b", name + TO, source)


def with_attribute(source: str, name: str) -> str:
    """A module in which an attribute has another name."""
    lines = source.splitlines(keepends=True)
    found = set[tuple[int, int]]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == name:
            found.add((node.end_lineno or 0, (node.end_col_offset or 0) - len(name)))
        elif isinstance(node, ast.ClassDef):
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            found |= {(f.lineno, f.col_offset) for f in fields if ast.unparse(f) == name}
            slots = [
                n for each in node.body if "__slots__" in ast.unparse(each) for n in ast.walk(each)
            ]
            slots = [n for n in slots if isinstance(n, ast.Constant) and n.value == name]
            found |= {(n.lineno, n.col_offset + 1) for n in slots}
        elif isinstance(node, ast.Call):
            function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            if ast.unparse(function).rpartition(".")[2] in RECORDS:
                found |= {(k.lineno, k.col_offset) for k in node.keywords if k.arg == name}
    for line, column in sorted(found, reverse=True):
        text = lines[line - 1].encode()
        lines[line - 1] = (
            text[:column] + (name + TO).encode() + text[column + len(name) :]
        ).decode()
    return "".join(lines)


def copy_of_langgraph(folder: Path, name: str) -> None:
    """Copy LangGraph, and rename a detail in it."""
    for root in sys.modules["langgraph"].__path__:
        shutil.copytree(root, folder / "langgraph", dirs_exist_ok=True)
    for path in (folder / "langgraph").rglob("*.py"):
        source = path.read_text()
        if (changed := renamed(source, name)) != source:
            path.write_text(changed)


NOT_PLAYED = {
    "afunc", "bound", "func", "channels", "checkpoint", "checkpointer", "config", "nodes", "node",
    "SELECT_SQL", "_load_checkpoint_tuple",
}  # fmt: skip
"""Names that public objects have too, and two that need a server."""


# --- the table -------------------------------------------------------------------------------


def played(name: str, names: Sequence[str] = (), *, python: str = sys.executable) -> dict[str, Any]:
    """What the scenes are with a detail renamed, played in a process of its own.

    Args:
        name: The detail; with `""` LangGraph is what is installed for `python`.
        names: The scenes. Default: all.
        python: The interpreter.
    """
    with tempfile.TemporaryDirectory() as folder:
        if name:
            copy_of_langgraph(Path(folder), name)
        paths = os.pathsep.join([folder, str(SCENES.parent.parent)])
        try:
            run = subprocess.run(  # noqa: S603 - our own script
                [python, str(SCENES), *names],
                env={**os.environ, "PYTHONPATH": paths},
                capture_output=True,
                check=False,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"hangs": [None, f"more than {SECONDS} seconds"], "told": []}
    if run.returncode:
        return {"import": [None, run.stderr.strip().rpartition("\n")[2]], "told": []}
    found: dict[str, Any] = json.loads(run.stdout)
    found["told"] += [line for line in run.stderr.splitlines() if INSTALLED in line]
    return found


def judged(found: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, str]:
    """Each scene that is not as usual: `error`, `poorer` or `wrong`."""
    is_told = any(INSTALLED in text for text in found["told"])
    result = {}
    for scene, each in found.items():
        if scene == "told" or each == usual.get(scene):
            continue
        error = each[1] or ""
        # The refusal of a provider is raised, as in the bare graph.
        if INSTALLED in error:
            result[scene] = "error"
        else:
            is_poorer = is_told and (not error or error.startswith("RefusedError"))
            result[scene] = "poorer" if is_poorer else "wrong"
    return result


def row(name: str, found: Mapping[str, Any], result: Mapping[str, str]) -> str:
    """A row of the table: the scenes that are not as usual, and whether a WARNING says so."""
    verdicts: dict[str, list[str]] = {}
    for scene, verdict in result.items():
        verdicts.setdefault(verdict, []).append(scene)
    told = [f"WARNING x{len(found['told'])}"] if found["told"] else []
    cells = [f"{verdict}: {', '.join(each)}" for verdict, each in verdicts.items()] or ["right"]
    return f"| `{name}` | {'; '.join([*cells, *told])} |\n"


WITHOUT = {
    "error": "an error when a graph is wrapped",
    "warning": "a WARNING",
    "nothing": "nothing: versions lack it, or there is another way",
}


def detail_table() -> str:
    """The details with what is lost without them, as the page for who decides has it."""
    rows: dict[tuple[str, str], list[str]] = {}
    for owner, details in table()["details"].items():
        for name, detail in details.items():
            instead = f" Instead: {detail['instead']}." if "instead" in detail else ""
            key = (detail["lost"] + "." + instead, WITHOUT[detail["without"]])
            rows.setdefault(key, []).append(f"`{owner}.{name}`")
    head = ["| detail | without it | what is said |", "|---|---|---|"]
    lines = [f"| {', '.join(each)} | {lost} | {said} |" for (lost, said), each in rows.items()]
    return "\n".join([*head, *lines]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("details", nargs="*")
    parser.add_argument("--told", action="store_true", help="print WARNINGs, errors and outcomes")
    parser.add_argument("--table", action="store_true", help="print what the details are, only")
    options = parser.parse_args(arguments)
    if options.table:
        sys.stdout.write(detail_table())
        return 0
    usual, is_wrong = played(""), False
    sys.stdout.write(f"| renamed in {INSTALLED} | {len(usual) - 1} scenes |\n|---|---|\n")
    for name in ["", *(options.details or names())]:
        found = played(name) if name else usual
        result = judged(found, usual)
        sys.stdout.write(row(name or "nothing", found, result))
        for text in dict.fromkeys(found["told"]) if options.told else ():
            sys.stdout.write(f"    {text}\n")
        for scene in result if options.told else ():
            sys.stdout.write(f"    {scene}: {found[scene]}\n    usual: {usual.get(scene)}\n")
        sys.stdout.flush()
        is_wrong = is_wrong or "wrong" in result.values()
    return is_wrong


def names() -> list[str]:
    """The details that are played, each once."""
    found = [name for details in table()["details"].values() for name in details]
    return list(dict.fromkeys(name for name in found if name not in NOT_PLAYED))


if __name__ == "__main__":
    sys.exit(main())
