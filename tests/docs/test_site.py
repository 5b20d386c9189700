"""The pages of the documentation, their pictures and the examples: what they show is what runs."""

import ast
import re
import runpy
import shlex
import tomllib
import warnings
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from langchain_core.messages import AIMessage

import tomorrow
from langgraph_patch import MessagesError, final_answers
from langgraph_patch.cli import commands, main
from langgraph_patch.history.findings import CAUSES, DanglingCall
from langgraph_patch.history.texts import default_text
from langgraph_patch.testing import RefusedError
from langgraph_patch.tools.once import REFUSALS
from support.paths import PAGES, ROOT, SITE, run_block, run_page

ELSEWHERE = {"how-to/databases", "how-to/wrap-an-agent"}
"""Pages that need a server or another package: `tests/server` runs them."""

POSTED = tomllib.loads(Path(__file__).with_name("posted.toml").read_text("utf-8"))
"""What people paste of an error: what is a heading of the page, and what is below one."""

FORMS = (
    *(("failed", None), ("failed", "timeout"), ("awaiting_input", None), ("not_started", None)),
    *(("awaiting_input", "paused"), ("not_started", "approval"), ("cancelled", None)),
    *(("malformed", detail) for detail in (None, "stopped", "tools_ran", "no_name")),
    *(("unknown", detail) for detail in (None, "started")),
)
"""Each form of a placeholder: its cause and its detail."""


@pytest.mark.parametrize("name", sorted(PAGES.keys() - ELSEWHERE))
def test_the_code_of_each_page_runs(name, tmp_path, monkeypatch):
    """A reader who pastes the blocks of a page from top to bottom gets no error."""
    monkeypatch.chdir(tmp_path)
    run_page(name)


@pytest.mark.parametrize("name", ["README", *sorted(PAGES)])
def test_the_commands_of_each_page_are_accepted(name, tmp_path, monkeypatch):
    """What a reader types has the commands and options that there are."""
    monkeypatch.chdir(tmp_path)
    for file in ("threads.sqlite", "patched.sqlite"):
        Path(file).touch()
    monkeypatch.setenv("DATABASE_URI", "threads.sqlite")
    for command in ("scan", "show", "repair", "undo", "demo"):
        monkeypatch.setattr(commands, command, lambda _: 0)
    text = PAGES.get(name, ROOT / "README.md").read_text("utf-8")
    blocks = "".join(re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    for line in re.findall(r"^(?:.* && )?langgraph-patch (.*)$", blocks, re.MULTILINE):
        assert main(shlex.split(line, comments=True)) == 0, line


@pytest.mark.parametrize("name", ["README", *sorted(PAGES)])
def test_a_page_with_a_tool_node_names_record(name):
    """A plain `ToolNode` records no result beside a pause: who pastes one reads what helps."""
    text = PAGES.get(name, ROOT / "README.md").read_text("utf-8")
    blocks = "".join(re.findall(r"^```python.*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert "tools_condition" not in blocks or "record=True" in text


def test_the_readme_runs_without_a_key(capsys):
    """The scripted model that is named beside the provider's takes its place."""
    text = (ROOT / "README.md").read_text("utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    block, count = re.subn(r'^model = ".*\n# (?=model = )', "", block, flags=re.MULTILINE)
    assert count == 1
    run_block(block)
    assert f"> {capsys.readouterr().out}" in text


def test_the_pages_are_short():
    """Who decides reads the limits first; the reference is looked up, the others are read."""
    texts = {name: page.read_text("utf-8") for name, page in PAGES.items()}
    table = tomorrow.detail_table()  # `python scripts/tomorrow.py --table` prints it
    assert texts["decide"].endswith(f"\n\n{table}")
    words = {name: len(text.removesuffix(table).split()) for name, text in texts.items()}
    assert words["limits"] <= 1500
    assert sum(count for name, count in words.items() if "reference/" in name) <= 10_000
    assert sum(words.values()) <= 31_500


def test_the_page_on_streams_quotes_its_errors():
    """Who gets one finds what it means in the table."""

    async def tokens():
        yield

    page = PAGES["how-to/streams"].read_text("utf-8")
    quoted = re.findall(r"a `MessagesError`.*?: `(.*?)`", page)
    wrong = (
        [{"model": {}}],
        [("updates", {"model": {"messages": [AIMessage("Hello.")]}})],
        [("messages/partial", [])],
        tokens(),
    )
    raised = []
    for stream in wrong:
        with pytest.raises(MessagesError) as error:
            list(final_answers(stream))
        raised.append(str(error.value))
    for text, quote in zip(raised, quoted, strict=True):
        assert fnmatchcase(text, quote.replace("...", "*")), text


_OF_ONCE = "once=|once: (?!tool call )|Thread .*the record of a call|The calls of a .* like this"


def test_each_refusal_of_once_has_its_row():
    """Who gets one finds what helps; and each row is of an error that there is."""
    texts = [*REFUSALS.values()]
    for file in ROOT.glob("langgraph_patch/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            text = "".join(part for part in parts if isinstance(part, str))
            if name.endswith("Error") and re.match(_OF_ONCE, text):
                texts.append(text)
    rows = re.findall(r"^\| (`.*?`) \|", PAGES["once"].read_text("utf-8"), re.MULTILINE)
    quoted = [quote for row in rows for quote in re.findall("`(.*?)`", row)]
    assert [text for text in texts if not any(quote in text for quote in quoted)] == []
    assert [quote for quote in quoted if not any(quote in text for text in texts)] == []


def test_the_start_page_prints_what_it_shows(capsys):
    """What stands below its first example is what the example prints."""
    run_page("index")
    printed = capsys.readouterr().out
    assert f"```output\n{printed}```" in PAGES["index"].read_text("utf-8")


def test_the_tests_of_a_page_pass_and_can_fail():
    """A reader pastes them into a file. Without the package each of them fails."""
    defined = run_page("how-to/test-your-graph")
    tests = [value for name, value in defined.items() if name.startswith("test_")]
    assert len(tests) == 5
    for test in tests:
        test()
    defined["with_patching"] = lambda graph: graph
    for test in tests:
        with pytest.raises((AssertionError, RefusedError)):
            test()


def test_each_page_is_found():
    """The navigation has each page once; `llms.txt` lists all but the start page for programs."""
    listed = re.findall(r"([\w/-]+)\.md", (SITE / "mkdocs.yml").read_text("utf-8"))
    assert sorted(listed) == sorted(PAGES)
    listed = re.findall(r"\(([\w/-]+)/\)", (SITE / "pages" / "llms.txt").read_text("utf-8"))
    assert sorted(listed) == sorted(PAGES.keys() - {"index"})


def test_an_error_that_is_pasted_is_found():
    """Each text is a heading of its own, so that a search finds it first; variants are below."""
    page = PAGES["errors"].read_text("utf-8")
    headings = [line for line in page.splitlines() if line.startswith("###")]
    assert [
        each for each in POSTED["headings"] if not any(each in heading for heading in headings)
    ] == []
    assert [each for each in POSTED["variants"] if each not in page] == []


def test_the_remedy_is_above_the_errors():
    """Who arrives with an error reads what to do before anything else."""
    page = PAGES["errors"].read_text("utf-8")
    assert page.index("with_patching(") < page.index("repair threads.sqlite") < page.index("\n### ")


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_reads_the_same_on_github(name):
    """No tabs, no notes in boxes and no directives: GitHub would show their signs."""
    signs = re.findall(
        r"^ *(?:===|!!!|\?\?\?|:::) .*", PAGES[name].read_text("utf-8"), re.MULTILINE
    )
    assert signs == []


def test_the_table_of_causes_has_the_texts_of_the_program():
    """A reader can search a sentence of a history on the page and finds it, word for word."""
    table = PAGES["causes"].read_text("utf-8").partition("| cause | when | what the model reads |")
    lines = table[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert {row[0] for row in rows} == {*(f"`{each}`" for each in CAUSES), "(a result is recorded)"}
    for cause, detail in FORMS:
        call = DanglingCall("{id}", "{name}", {}, cause, "{error}", AIMessage(""), 0, detail)
        text = default_text(call)
        assert any(row[0] == f"`{cause}`" and f"`{text}`" in row[2] for row in rows), text


def test_what_maintainers_read_names_what_is_there():
    """A path leads to a file, in the package or beside it; the table of packages has each once."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for text in (PAGES["how-it-works"].read_text("utf-8"), contributing):
        named = re.findall(r"`([\w.]+(?:/[\w.-]+)+|\w+\.py)`", text)
        folders = (ROOT / "langgraph_patch", ROOT, ROOT / "docs" / "pages")
        assert named
        assert [n for n in named if not any((folder / n).exists() for folder in folders)] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["importlinter"]["contracts"][0]["layers"]
    table = contributing.partition("| package | what it does |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert listed == [name for layer in packages for name in layer.split(" | ")]


def test_the_page_that_decides_has_the_size():
    """The lines of code within 500, and the private names of LangGraph."""
    count = 0
    for file in ROOT.glob("langgraph_patch/**/*.py"):
        lines = file.read_text("utf-8").splitlines()
        for each in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                lines[each.lineno - 1 : each.end_lineno] = [""] * (
                    each.end_lineno - each.lineno + 1
                )
        count += sum(not line.lstrip().startswith("#") for line in lines if line.strip())
    details = (ROOT / "langgraph_patch/_langgraph/details.toml").read_text("utf-8")
    names = sum(map(len, tomllib.loads(details)["details"].values()))
    page = PAGES["decide"].read_text("utf-8")
    [about] = re.findall(r"about ([\d,]+) lines of code", page)
    assert abs(int(about.replace(",", "")) - count) < 500
    assert f"{names} private ones" in page


def test_the_readme_fits():
    """It is read in three minutes, no line of code is cut on GitHub, and its links lead there."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 110
    prose = re.sub(r"^```.*?^```|^\|.*?$|\]\(\S+\)", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 550
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 90] == []
    commands = (
        "pip install '.[all]' && langgraph-patch demo\npip install -e '.[dev]' && pytest\n```"
    )
    assert commands in text  # `.ci/run` takes the second one from here
    linked = re.findall(r"/(?:blob|tree|langgraph-patch)/main/([\w./-]+)", text)
    assert linked
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_the_badges_are_true():
    """They say what the package requires."""
    badges = re.findall(r"\[!\[(.*?)\]", (ROOT / "README.md").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [langgraph] = [each for each in project["dependencies"] if each.startswith("langgraph>")]
    oldest = langgraph.removeprefix("langgraph>=").partition(",")[0]
    assert badges == [
        f"Licence: {project['license']}",
        f"Python {project['requires-python'].removeprefix('>=')} or later",
        f"LangGraph {oldest} or later",
    ]


# --- pictures -----------------------------------------------------------------------------

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    PICTURES = runpy.run_path(str(ROOT / "scripts" / "pictures.py"))["PICTURES"]
FOLDER = SITE / "pages" / "pictures"


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_shows_what_happens(name):
    """A fresh run draws the same picture: `python scripts/pictures.py` writes it anew."""
    assert PICTURES[name]() == (FOLDER / f"{name}.svg").read_text("utf-8")


def test_each_picture_is_shown_and_loads_nothing():
    """A page or the README shows it with a text for those who do not see it; no host is asked."""
    pages = [*(SITE / "pages").rglob("*.md"), ROOT / "README.md"]
    text = "".join(page.read_text("utf-8") for page in pages)
    shown = dict(re.findall(r"!\[(.*?)\]\(\S*pictures/([\w-]+)\.svg\)", text))
    assert set(shown.values()) == {file.stem for file in FOLDER.iterdir()} == set(PICTURES)
    assert all(len(alternative) > 40 for alternative in shown)
    for file in FOLDER.iterdir():
        picture = file.read_text("utf-8")
        ET.fromstring(picture)  # noqa: S314 - of this project
        assert (
            re.findall(r"https?://(?!www\.w3\.org/2000/svg)|url\(h|<script|<image", picture) == []
        )


# --- examples ----------------------------------------------------------------------------------

EXAMPLES = ROOT / "examples"
CONVERSATION = """\
[human] Write to Bob and wire him 100.
[ai]
[tool] sent to bob
[tool] Tool call wire_money with id call_2 asked for human input; no answer and no result are \
recorded.
[human] Never mind the money.
[ai] I have read: Never mind the money.
"""
INCIDENT = """\
400: An assistant message with 'tool_calls' must be followed by tool messages
'1': damaged - recovered 'send_email' 'call_1'; inserted 'wire_money' 'call_2' (awaiting_input)
'1': repaired - recovered 'send_email' 'call_1'; inserted 'wire_money' 'call_2' (awaiting_input)
I have read: Are you there?
"""
PRINTED = {
    "agent": CONVERSATION,
    "incident": INCIDENT,
    "swarm": CONVERSATION,
    "tool_node": CONVERSATION,
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_is_about(name, tmp_path, monkeypatch, capsys):
    """Its model refuses what a provider refuses; the mail is known, and that a human was asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.replace("[ai] \n", "[ai]\n") == PRINTED[name]


def test_each_example_is_run():
    """A program that is added is run here, or it is what the others share."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, "scripted"}


def test_the_page_shows_the_web_service():
    """The program on the page is the one that `tests/server` runs, and it is short."""
    program = (EXAMPLES / "web_service" / "app.py").read_text("utf-8")
    assert f'```python title="app.py"\n{program}```\n' in PAGES["how-to/web-service"].read_text(
        "utf-8"
    )
    assert len(program.splitlines()) < 125
