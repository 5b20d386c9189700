"""The pages of the documentation that need a LangGraph Server or another package."""

import pytest

from support.paths import run_page


def test_the_code_of_the_page_with_deep_agents_runs(tmp_path, monkeypatch):
    """A reader who pastes the blocks of the page from top to bottom gets no error."""
    monkeypatch.chdir(tmp_path)
    assert "create_deep_agent" in run_page("how-to/wrap-an-agent")


@pytest.mark.xdist_group("server")
def test_the_code_of_the_page_on_langgraph_server_runs(dev_server, monkeypatch):
    """The same, with a server that runs the two files of the page."""
    monkeypatch.setenv("LANGSMITH_API_KEY", "")
    monkeypatch.setenv("LANGGRAPH_URL", dev_server)
    run_page("how-to/server")["client"].close()
