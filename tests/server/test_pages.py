"""The pages of the documentation that need a LangGraph Server or another package."""

import re

import pytest

from support.paths import PAGES, run_page
from support.servers import running_server

_FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_with_deep_agents_runs(tmp_path, monkeypatch):
    """A reader who pastes the blocks of the page from top to bottom gets no error."""
    monkeypatch.chdir(tmp_path)
    assert "create_deep_agent" in run_page("how-to/wrap-an-agent")


@pytest.mark.xdist_group("server")
def test_the_code_of_the_page_on_langgraph_server_runs(tmp_path, monkeypatch):
    """The same, with a server that runs the two files of the page."""
    monkeypatch.setenv("LANGSMITH_API_KEY", "")
    files = dict(_FILE.findall(PAGES["how-to/server"].read_text("utf-8")))
    assert set(files) == {"agent.py", "langgraph.json"}
    (tmp_path / "files").mkdir()
    for name, text in files.items():
        (tmp_path / "files" / name).write_text(text)
    with running_server(tmp_path / "server", tmp_path / "files") as url:
        monkeypatch.setenv("LANGGRAPH_URL", url)
        run_page("how-to/server")["client"].close()
