"""The notebooks run, without a key and without a network, and show what is stored in them.

`PYTHONPATH=tests python tests/server/test_notebooks.py` runs them and stores what they show.
"""

import os
import re
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""What a notebook says of the Python that ran it: nothing that differs between machines."""

OFFLINE = """
import socket

_connect = socket.socket.connect


def connect(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
        raise OSError(f"a notebook is offline, so there is no {address!r}")
    return _connect(self, address)


socket.socket.connect = connect
"""
"""Run by the kernel, and by each Python that the kernel starts, before anything else."""

RANDOM_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
NO_ID = "00000000-0000-0000-0000-000000000000"
AGE = re.compile(r"\b\d+ (?:s|seconds?|min|minutes?)\b")
COLOUR = re.compile(r"\x1b\[[\d;]*m")


def read(path):
    """The notebook of a file."""
    return nbformat.read(path, as_version=4)


def outputs_of(notebook):
    """All outputs, in order."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def shown(notebook):
    """What each cell shows, without ages.

    An age may be a character longer, which moves the breaks in the columns of its table: so of a
    text with one, the words are compared, whatever their order and their colours.
    """
    for output in outputs_of(notebook):
        if AGE.search(output.get("text", "")):
            output["text"] = sorted(AGE.sub("AGE ", COLOUR.sub(" ", output["text"])).split())
    return [cell.get("outputs") for cell in notebook.cells]


def is_ended_bar(output):
    """Whether an output is what rich leaves of a bar: nothing, before or after the text."""
    return output.get("data", {}).get("text/plain") == ""


def run(notebook, folder):
    """Run a notebook in place, in `folder`, which is empty; an error in a cell is raised."""
    for name in ("site", "cwd"):
        (folder / name).mkdir()
    (folder / "site" / "sitecustomize.py").write_text(OFFLINE)
    paths = [str(folder / "site"), os.environ.get("PYTHONPATH")]
    others = ("_API_KEY", "NO_COLOR", "FORCE_COLOR")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.endswith(others)},
        "IPYTHONDIR": str(folder / "ipython"),  # the user's own settings are not the notebook's
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    resources = {"metadata": {"path": str(folder / "cwd")}}
    client = NotebookClient(notebook, record_timing=False, resources=resources, timeout=60)
    client.coalesce_streams = True
    client.execute(env=environment)
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not is_ended_bar(output)]
    for output in outputs_of(notebook):
        for key, value in output.get("data", {}).items():
            output.data[key] = RANDOM_ID.sub(NO_ID, value)
        if "text" in output:
            output.text = RANDOM_ID.sub(NO_ID, output.text)
    notebook.metadata = METADATA
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored_in_it(path, tmp_path):
    """Run from an empty folder, no cell fails, and each shows what a reader sees unrun."""
    stored, outputs = read(path), outputs_of(read(path))
    assert outputs
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []
    assert stored.metadata == METADATA
    assert shown(run(read(path), tmp_path)) == shown(stored), (
        "PYTHONPATH=tests python tests/server/test_notebooks.py stores them anew"
    )


if __name__ == "__main__":
    for each in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as empty:
            nbformat.write(run(read(each), Path(empty)), each)
