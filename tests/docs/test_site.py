"""Every Python block of the documentation site runs, and every page is in the navigation."""

from __future__ import annotations

import re
import warnings

import pytest
import yaml
from langchain_core.messages import AIMessage

import langgraph_patch
from langgraph_patch import errors, streaming, threads
from langgraph_patch.history.texts import CAUSES, DanglingCall, default_text
from support.dev_server import running_server
from support.paths import ROOT

SITE = ROOT / "docs"
PAGES = sorted((SITE / "pages").rglob("*.md"))
POSTGRES = SITE / "pages" / "how-to" / "postgresql.md"  # typed by test_incident.py
SERVER = SITE / "pages" / "how-to" / "server.md"
CAUSES_PAGE = SITE / "pages" / "money.md"
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def _code_of(page):
    """The Python blocks of a page as one module; each statement keeps its line number."""
    text = page.read_text()
    lines = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2))
        for number, line in enumerate(block[2].splitlines(), first):
            lines[number] = line.removeprefix(block[1])
    return "\n".join(lines)


def _run(page):
    """Run a page; what its code defines."""
    code = compile(_code_of(page), str(page), "exec", dont_inherit=True)
    defined = {"__name__": "page"}
    with warnings.catch_warnings():
        exec(code, defined)  # noqa: S102 - these are the pages of this project
    return defined


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in (POSTGRES, SERVER)], ids=lambda page: page.stem
)
def test_the_code_of_each_page_runs(page, tmp_path, monkeypatch):
    """A reader who pastes the blocks of a page from top to bottom gets no error."""
    monkeypatch.chdir(tmp_path)
    _run(page)


@pytest.mark.slow
@pytest.mark.xdist_group("server")
def test_the_code_of_the_page_on_langgraph_server_runs(tmp_path, monkeypatch):
    """The same, with a server that runs the two files of the page."""
    monkeypatch.setenv("LANGSMITH_API_KEY", "")
    files = dict(FILE.findall(SERVER.read_text()))
    assert set(files) == {"agent.py", "langgraph.json"}
    (tmp_path / "files").mkdir()
    for name, text in files.items():
        (tmp_path / "files" / name).write_text(text)
    with running_server(tmp_path / "server", tmp_path / "files") as url:
        monkeypatch.setenv("LANGGRAPH_URL", url)
        _run(SERVER)["client"].close()


def test_the_navigation_has_each_page_once():
    """A page that nobody links to is not found."""
    listed = re.findall(r"[\w/-]+\.md", (SITE / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(SITE / "pages")) for page in PAGES)


def test_the_site_requests_nothing_from_another_host():
    """Fonts and scripts are part of the site, so that it works offline and tracks nobody."""
    settings = yaml.safe_load((SITE / "mkdocs.yml").read_text())
    assert settings["theme"]["font"] is False
    assert "extra_javascript" not in settings
    assert "extra_css" not in settings or all("//" not in each for each in settings["extra_css"])


def test_llms_txt_lists_each_page():
    """A program that reads `llms.txt` finds every page but the start page."""
    listed = re.findall(r"\(([\w/-]+/)\)", (SITE / "pages" / "llms.txt").read_text())
    addresses = {f"{page.relative_to(SITE / 'pages').with_suffix('')}/" for page in PAGES}
    assert set(listed) == addresses - {"index/"}


def test_an_error_that_is_pasted_is_found():
    """The start page quotes each provider's sentence, so that the search finds it."""
    page = (SITE / "pages" / "index.md").read_text()
    for sentence in (
        "must be followed by tool messages responding to each 'tool_call_id'",
        "must be a response to a preceeding message with 'tool_calls'",
        "No tool output found for function call",
        "No tool call found for function call output",
        "`tool_use` ids were found without `tool_result` blocks immediately after",
        "unexpected `tool_use_id` found in `tool_result` blocks",
        "number of function response parts is equal to the number of function call parts",
        "Expected toolResult blocks",
        "Not the same number of function calls and responses",
        "do not have a corresponding ToolMessage",
        "INVALID_CHAT_HISTORY",
        "max_tokens",
    ):
        assert sentence in page


def test_every_public_name_is_in_the_reference():
    """The reference has an entry for each public name of each public module."""
    text = "".join(page.read_text() for page in (SITE / "pages" / "reference").glob("*.md"))
    documented = set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))
    last_names = {name.rpartition(".")[2] for name in documented}
    public = {*langgraph_patch.__all__, *threads.__all__, *streaming.__all__}
    assert public - set(vars(errors)) - last_names == set()
    assert "langgraph_patch.errors" in documented


def _rows(page, heading):
    """The cells of the rows of the table of a page that has this heading."""
    table = page.read_text().partition(heading)[2].partition("\n\n")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in row] for row in rows]


@pytest.mark.parametrize(
    ("cause", "detail", "human_follows"),
    [
        ("failed", None, False),
        ("failed", "timeout", False),
        ("awaiting_input", None, True),
        ("awaiting_input", None, False),
        ("awaiting_input", "paused", False),
        ("not_started", "approval", True),
        ("not_started", "approval", False),
        ("not_started", None, False),
        ("cancelled", None, False),
        ("malformed", None, False),
        ("malformed", "tools_ran", False),
        ("malformed", "no_name", False),
        ("unknown", None, False),
    ],
)
def test_the_table_of_causes_has_the_texts_of_the_program(cause, detail, human_follows):
    """A reader can search a sentence of a history in the page and finds it, word for word."""
    call = DanglingCall("{id}", "{name}", {}, cause, "{error}", AIMessage(""), 0, detail)
    text = default_text(call, human_follows=human_follows)
    rows = _rows(CAUSES_PAGE, "| cause | when | what the model reads |")
    assert [row[2] for row in rows if f"`{text}`" in row[2] and row[0] == f"`{cause}`"] != []


def test_each_cause_is_in_the_table():
    """The table is complete."""
    rows = _rows(CAUSES_PAGE, "| cause | when | what the model reads |")
    assert {row[0] for row in rows} == {f"`{cause}`" for cause in CAUSES} | {
        "(a result is recorded)"
    }
