"""The pictures of the documentation are those that `scripts/pictures.py` makes of a run."""

import re
import runpy
import warnings
from xml.etree import ElementTree as ET

import pytest

from support.paths import ROOT, SITE

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
