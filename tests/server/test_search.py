"""What somebody types into the search of the site, and the page that comes first.

The site is searched with lunr in a browser, with these weights; this is lunr in Python.
"""

import html
import json
import re
import subprocess
import sys
import tomllib

import pytest
from lunr import lunr
from lunr.stop_word_filter import WORDS as STOP_WORDS

from support.paths import ENVIRONMENT, PAGES, ROOT, SITE

pytestmark = pytest.mark.xdist_group("site")  # it is built once

WORDS = {
    "approval": "approvals/",
    "async": "reference/streaming/",
    "causes": "causes/",
    "deepagents": "how-to/wrap-an-agent/",
    "FastAPI": "how-to/web-service/",
    "image": "errors/",
    "INVALID_CHAT_HISTORY": "errors/",
    "kubernetes": "how-to/databases/",
    "latency": "decide/",
    "limits": "limits/",
    "metrics": "know-about-it/",
    "monitoring": "know-about-it/",
    "once": "once/",
    "overhead": "decide/",
    "performance": "decide/",
    "PostgreSQL": "how-to/databases/",
    "prefill": "errors/",
    "Redis": "compatibility/",
    "shard": "how-to/databases/",
    "SSE": "how-to/web-service/",
    "tool_use": "errors/",
    "trim": "how-to/add-a-node/",
    "undo": "reference/command-line/",
}
"""A word -> the page of its first hit."""


SEPARATOR = re.compile(r"[\s\-.,:;\"'`(){}\[\]/!?]+")
"""What separates words on the site: `separator` of `docs/mkdocs.yml`."""
SIGNS = re.compile(
    re.search(r"signs = /(.+)/g", (SITE / "pages" / "search.js").read_text("utf-8"))[1]
)
"""What `search.js` replaces in what is typed."""

HEADINGS = re.findall(r"^### (.+)$", PAGES["errors"].read_text("utf-8"), re.MULTILINE)

POSTED = tomllib.loads((ROOT / "tests/docs/posted.toml").read_text("utf-8"))["posted"]
"""What people post, with ids, places and numbers of their own."""


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """Build the site, strictly, and search it: the addresses of the hits, the best first."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    options = ["--config-file", ROOT / "docs" / "mkdocs.yml", "--site-dir", folder]
    subprocess.run([*command, *options], check=True, env=ENVIRONMENT)  # noqa: S603 - our own site
    entries = json.loads((folder / "search" / "search_index.json").read_text("utf-8"))["docs"]
    documents = [
        {"id": str(number)}
        | {
            name: SEPARATOR.sub(" ", html.unescape(re.sub("<.*?>", " ", entry[name])))
            for name in ("title", "text")
        }
        for number, entry in enumerate(entries)
    ]
    fields = [{"field_name": "title", "boost": 1000}, {"field_name": "text", "boost": 1}]
    index = lunr(ref="id", fields=fields, documents=documents)

    def found(typed):
        words = SEPARATOR.sub(" ", SIGNS.sub(" ", typed))
        return [entries[int(hit["ref"])]["location"] for hit in index.search(words)]

    return found


@pytest.mark.parametrize("word", WORDS)
def test_a_word_finds_its_page(word, search):
    """The first hit is on the page that answers."""
    first, *_ = search(word)
    assert first.startswith(WORDS[word])


def test_the_separator_is_that_of_the_site():
    """Quotes are doubled in the file."""
    [line] = re.findall(r"separator: '(.+)' #", (SITE / "mkdocs.yml").read_text("utf-8"))
    assert line.replace("''", "'") == SEPARATOR.pattern.replace('\\"', '"')


@pytest.mark.parametrize("text", [*HEADINGS, *POSTED])
def test_five_words_of_an_error_find_it(text, search):
    """Any five words in a row, pasted with their signs; three of them say something."""
    parts = five_words(text.strip("`"))
    telling = [each for each in parts if len({*each.lower().split()} - STOP_WORDS) > 2]
    for part in telling or [text.strip("`")]:
        assert any(hit.startswith("errors/") for hit in search(part)[:5]), part


@pytest.mark.parametrize("text", POSTED)
def test_words_of_an_error_are_in_one_line(text):
    """The search of GitHub finds words in their order; numbers and ids are everybody's own."""
    lines = PAGES["errors"].read_text("utf-8").splitlines()
    for part in re.split(r"\S*\d\S*", text):
        assert any(part.strip() in line for line in lines), part


def five_words(text):
    """All runs of five words."""
    words = text.split()
    return [" ".join(words[at : at + 5]) for at in range(max(len(words) - 4, 1))]
