"""The notebooks run, without a key and without a network, and show what is stored in them.

`PYTHONPATH=tests python tests/docs/test_notebooks.py` runs them and stores what they show.
"""

import copy
import itertools
import json
import os
import re
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from support.paths import ROOT

pytestmark = pytest.mark.slow

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

MACHINE_PATH = re.compile(
    r"""(?<![\w.:/])/(?:home|mnt|opt|private|root|tmp|Users|usr|var|work)\b|\b[A-Z]:\\\\"""
)
RANDOM_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
AGE = re.compile(r"\b\d+ (?:s|seconds?|min|minutes?)\b *")
ANCHOR = re.compile(r"\blgp-[0-9a-f]{8}\b")
NO_ID = "00000000-0000-0000-0000-000000000000"

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def run(notebook, folder):
    """Run a notebook in place, in `folder`, which is empty; an error in a cell is raised."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(OFFLINE)
    (folder / "cwd").mkdir()
    paths = [str(folder / "site"), os.environ.get("PYTHONPATH")]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
        "IPYTHONDIR": str(folder / "ipython"),  # the user's own settings are not the notebook's
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    client = NotebookClient(
        notebook,
        coalesce_streams=True,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder / "cwd")}},
        timeout=60,
    )
    client.execute(env=environment)
    for cell in code_cells(notebook):
        for output in cell.outputs:
            for key, value in output.get("data", {}).items():
                output.data[key] = RANDOM_ID.sub(NO_ID, value)
            if "text" in output:
                output.text = RANDOM_ID.sub(NO_ID, output.text)
    notebook.metadata = METADATA
    return notebook


def code_cells(notebook):
    """The cells that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook):
    """What each code cell shows; of a picture, that there is one; of HTML, not its style.

    Ages differ between two runs, and so do the anchors of a page, which are made of all its ids.
    """
    outputs = [copy.deepcopy(cell.outputs) for cell in code_cells(notebook)]
    for output in itertools.chain(*outputs):
        data = output.get("data", {})
        if "image/png" in data:
            data["image/png"] = "a picture"
        if "text/html" in data:
            page = re.sub("<style>.*?</style>", "", data["text/html"], flags=re.DOTALL)
            data["text/html"] = ANCHOR.sub("lgp-ANCHOR", AGE.sub("AGE", page))
        if "text" in output:
            output["text"] = AGE.sub("AGE", output["text"])
    return outputs


@each_notebook
def test_a_notebook_runs_and_shows_what_is_stored_in_it(path, tmp_path):
    """Run from an empty folder, no cell fails, and each shows what a reader sees unrun."""
    stored = nbformat.read(path, as_version=4)
    fresh = run(nbformat.read(path, as_version=4), tmp_path)
    assert shown(fresh) == shown(stored), (
        "PYTHONPATH=tests python tests/docs/test_notebooks.py stores them anew"
    )


@each_notebook
def test_every_cell_was_run_once_and_in_order(path):
    """A reader who runs all cells gets the numbers that are stored."""
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@each_notebook
def test_no_output_is_an_error_or_a_warning(path):
    """What a notebook shows is what it is about: no traceback, nothing on the standard error."""
    outputs = [o for cell in code_cells(nbformat.read(path, as_version=4)) for o in cell.outputs]
    assert outputs
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []
    assert "Traceback (most recent call last)" not in json.dumps(outputs)


@each_notebook
def test_nothing_in_a_notebook_tells_whose_machine_ran_it(path):
    """No path of a machine, no time, no version: neither in the outputs nor beside them."""
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata == METADATA
    assert [cell.metadata for cell in notebook.cells] == [{}] * len(notebook.cells)
    for cell in code_cells(notebook):
        for output in cell.outputs:
            output.get("data", {}).pop("image/png", None)
    assert MACHINE_PATH.findall(json.dumps(notebook, ensure_ascii=False)) == []


@each_notebook
def test_a_notebook_begins_with_its_title(path):
    """The first cell is a heading with the number of the file."""
    first = nbformat.read(path, as_version=4).cells[0]
    number = int(path.stem.partition("_")[0])
    assert first.cell_type == "markdown"
    assert re.match(rf"# {number}\. \w", first.source)


def test_the_notebooks_are_numbered_from_one():
    """None is missing."""
    numbers = [int(path.stem.partition("_")[0]) for path in NOTEBOOKS]
    assert numbers == list(range(1, len(NOTEBOOKS) + 1))
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("where", ["here", "in a process"])
def test_a_notebook_that_needs_a_network_fails(where, tmp_path):
    """The guard holds in the kernel, and in what the kernel starts."""
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    if where == "in a process":
        code = (
            "import subprocess, sys\n"
            f"ran = subprocess.run([sys.executable, '-c', {code!r}], stderr=subprocess.PIPE)\n"
            "if ran.returncode:\n"
            "    raise OSError(ran.stderr)"
        )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    with pytest.raises(CellExecutionError, match="a notebook is offline"):
        run(notebook, tmp_path)


@pytest.mark.parametrize("path", ["/tmp/a", "/home/ada/x", "C:\\\\Users", '"/opt/python"'])  # noqa: S108 - texts, not files
def test_a_path_of_a_machine_is_seen(path):
    """And an address on the web, or the end of an HTML tag, is none."""
    assert MACHINE_PATH.search(path)
    assert not MACHINE_PATH.search("https://host/opt/x and <b>a</b> and and/or, tmp/x")


if __name__ == "__main__":
    for each in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as empty:
            nbformat.write(run(nbformat.read(each, as_version=4), Path(empty)), each)
