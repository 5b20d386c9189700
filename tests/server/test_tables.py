"""What the documentation claims is what the scripts print: tables, bugs, benchmarks."""

import runpy
import sys
import tomllib

import pytest

import compare
import langgraph_bugs
import saver_table
import wire_table
from support.paths import PAGES, ROOT, SCRIPTS
from support.wires import WIRES


def test_each_damage_is_answered_in_the_end():
    """By each provider: once it is repaired, or with a second request."""
    rows = [line for line in wire_table.table().splitlines() if line.startswith("|")][2:]
    cells = [cell for row in rows for cell in row.strip("| ").split(" | ")[1:]]
    assert len(rows) > 12
    assert {cell.rpartition("→")[2] for cell in cells} == {"ok", "2nd"}


def test_the_readme_quotes_the_comparison_and_ours_wins_every_row():
    """Each row of its table is one of the program, without the agent that is deprecated.

    What the comparison shows of this package holds for all wires and all questions.
    """
    readme, rows = (ROOT / "README.md").read_text("utf-8").splitlines(), [*compare.rows()]
    shown = {f"| {title} | {' | '.join(cells[1:])} |" for title, cells in rows}
    assert f"| | {' | '.join([*compare.COLUMNS][1:])} |" in readme
    assert len(shown.intersection(readme)) == 4
    ours = {cells[-1] for _, cells in rows}
    assert ours == {"yes", f"{len(WIRES)} of {len(WIRES)}", "×1.00"}


def test_the_comparison_names_the_versions_that_are_pinned():
    """A newer version is measured anew: what the page says of a competitor is of that version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    pins = dict(each.split("==") for each in [*extras["dev"], *extras["test"]] if "==" in each)
    page = PAGES["decide"].read_text("utf-8")
    for name in ("langgraph", "langchain", "deepagents"):
        assert f"{name} {pins[name]}" in page


@pytest.mark.parametrize("check", langgraph_bugs.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.needs("delta_that_keeps_removed_messages", langgraph="1.2.24")
def test_the_pinned_versions_have_one_of_the_bugs(check):
    """What the compatibility page says of the newest versions."""
    has_it = check is langgraph_bugs.used_answer_for_the_next_question
    assert langgraph_bugs.result(check) == ("yes" if has_it else "no")


def test_the_benchmarks_print_one_table(monkeypatch, capsys):
    """One Markdown table with rows of each part, and nothing else; people look at its figures."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick"])
    monkeypatch.syspath_prepend(SCRIPTS / "benchmarks")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPTS / "benchmarks"), run_name="__main__")
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert {line.count("|") for line in out.splitlines()} == {6}, out
    assert out.count("\n") > 50


def test_langgraphs_own_checkpointers_can_do_everything(monkeypatch, capsys):
    """Those that need no server, by `saver_table`; the documentation has the others."""
    monkeypatch.setattr(sys, "argv", ["saver_table.py"])
    saver_table.main()
    lines = [line.strip(" |").split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = {line[0]: line[2:] for line in lines}
    assert rows["SqliteSaver"] == ["yes"] * 5
    *others, undo, once = rows["InMemorySaver"]
    assert [*others, once] == ["yes"] * 4
    assert "cannot delete single checkpoints" in undo
    assert rows["PostgresSaver"] == ["no URI"] * 5
