"""The pages of the documentation: their code runs, each is found, and they quote the program."""

import re
from itertools import product

import pytest
from langchain_core.messages import AIMessage

from langgraph_patch.history.texts import CAUSES, DanglingCall, default_text
from support.pages import PAGES, SITE, run_page
from support.paths import ROOT

ELSEWHERE = {"how-to/postgresql", "how-to/server", "how-to/wrap-an-agent"}
"""Pages that need a server or another package: `tests/server` runs them."""

SENTENCES = (
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
    "must have either content or tool_calls",
    "text content blocks must contain non-whitespace text",
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation",
    "thinking.signature: Field required",
    "The final block in an assistant message cannot be `thinking`",
    "was found without a corresponding `web_search_tool_result` block",
    "was provided without its required 'reasoning' item",
    "was provided without its required following item",
    "Duplicate item found with id",
    "Unexpected role 'user' after role 'tool'",
)
"""What providers and LangGraph say of a broken history."""

FORMS = (
    *(("failed", None), ("failed", "timeout"), ("awaiting_input", None), ("not_started", None)),
    *(("awaiting_input", "paused"), ("not_started", "approval"), ("cancelled", None)),
    *(("malformed", None), ("malformed", "tools_ran"), ("malformed", "no_name"), ("unknown", None)),
)
"""Each form of a placeholder: its cause and its detail."""


@pytest.mark.parametrize("name", sorted(PAGES.keys() - ELSEWHERE))
def test_the_code_of_each_page_runs(name, tmp_path, monkeypatch):
    """A reader who pastes the blocks of a page from top to bottom gets no error."""
    monkeypatch.chdir(tmp_path)
    run_page(name)


def test_each_page_is_found():
    """The navigation has each page once; `llms.txt` lists all but the start page for programs."""
    listed = re.findall(r"([\w/-]+)\.md", (SITE / "mkdocs.yml").read_text("utf-8"))
    assert sorted(listed) == sorted(PAGES)
    listed = re.findall(r"\(([\w/-]+)/\)", (SITE / "pages" / "llms.txt").read_text("utf-8"))
    assert sorted(listed) == sorted(PAGES.keys() - {"index"})


def test_an_error_that_is_pasted_is_found():
    """The start page quotes each provider's sentence, so that the search finds it."""
    page = PAGES["index"].read_text("utf-8")
    assert [sentence for sentence in SENTENCES if sentence not in page] == []


def test_the_table_of_causes_has_the_texts_of_the_program():
    """A reader can search a sentence of a history on the page and finds it, word for word."""
    table = PAGES["money"].read_text("utf-8").partition("| cause | when | what the model reads |")
    lines = table[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert {row[0] for row in rows} == {*(f"`{each}`" for each in CAUSES), "(a result is recorded)"}
    for (cause, detail), human_follows in product(FORMS, (True, False)):
        call = DanglingCall("{id}", "{name}", {}, cause, "{error}", AIMessage(""), 0, detail)
        text = default_text(call, human_follows=human_follows)
        assert any(row[0] == f"`{cause}`" and f"`{text}`" in row[2] for row in rows), text


def test_the_readme_stays_short():
    """Someone with a dying thread reads it in three minutes."""
    assert len((ROOT / "README.md").read_text("utf-8").split()) < 650
