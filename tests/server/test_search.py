"""What somebody types into the search of the site, and the page that comes first.

The site is searched with lunr in a browser, with these weights; this is lunr in Python.
"""

import json
import re
import subprocess
import sys

import pytest
from lunr import lunr

from support.paths import ENVIRONMENT, ROOT

WORDS = {
    "approval": "approvals/",
    "async": "reference/streaming/",
    "causes": "causes/",
    "deepagents": "how-to/wrap-an-agent/",
    "FastAPI": "how-to/web-service/",
    "image": "errors/",
    "INVALID_CHAT_HISTORY": "errors/",
    "kubernetes": "how-to/many-threads/",
    "latency": "how-it-works/",
    "limits": "limits/",
    "metrics": "know-about-it/",
    "monitoring": "know-about-it/",
    "once": "once/",
    "overhead": "how-it-works/",
    "performance": "how-it-works/",
    "PostgreSQL": "how-to/postgresql/",
    "prefill": "errors/",
    "Redis": "compatibility/",
    "shard": "how-to/many-threads/",
    "SSE": "how-to/web-service/",
    "tool_use": "errors/",
    "trim": "how-to/trimming/",
    "undo": "reference/command-line/",
}
"""A word -> the page of its first hit."""


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """Searches the built site: the addresses of the hits, the best first."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    options = ["--config-file", ROOT / "docs" / "mkdocs.yml", "--site-dir", folder]
    subprocess.run([*command, *options], check=True, env=ENVIRONMENT)  # noqa: S603 - our own site
    entries = json.loads((folder / "search" / "search_index.json").read_text("utf-8"))["docs"]
    documents = [
        {"id": str(number)}
        | {name: re.sub("<.*?>", " ", entry[name]) for name in ("title", "text")}
        for number, entry in enumerate(entries)
    ]
    fields = [{"field_name": "title", "boost": 1000}, {"field_name": "text", "boost": 1}]
    index = lunr(ref="id", fields=fields, documents=documents)
    return lambda words: [entries[int(hit["ref"])]["location"] for hit in index.search(words)]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_finds_its_page(word, search):
    """The first hit is on the page that answers."""
    first, *_ = search(word)
    assert first.startswith(WORDS[word])
