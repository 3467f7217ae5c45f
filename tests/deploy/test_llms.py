"""`llms.txt` of the site (X-41), as far as it can be seen without building it; the build itself checks that every page
that it names exists."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from typing import Any

from tests.deploy.command_lines import parsed
from tests.deploy.test_site import ROOT, SITE, pages_of


def _hook() -> Any:
    spec = importlib.util.spec_from_file_location("site_llms", ROOT / "docs/site_llms.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_llms"] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


HOOK = _hook()
FOUND = list(HOOK.entries(SITE["nav"], ROOT / "docs"))


def test_x41_llms_txt_names_every_page_of_the_navigation_once() -> None:
    text = HOOK.short(SITE["site_name"], SITE["site_description"], FOUND)
    linked = re.findall(r"^- \[[^\]]+\]\(([^)]+)\.html\): (.+)$", text, re.MULTILINE)
    assert sorted(f"{page}.md" for page, _ in linked) == sorted(pages_of(SITE["nav"]))
    assert "docs/site_llms.py" in SITE["hooks"], "it is written with the site"
    assert text.startswith("# horsies\n\n> ")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert len(headings) == len(set(headings)) > 5


def test_x41_each_line_says_something_about_its_page() -> None:
    for entry in FOUND:
        words = HOOK.about(entry.text)
        assert 20 <= len(words) <= HOOK.LONGEST or entry.source.startswith("reference/"), (entry.source, words)
        assert not re.search(r"\]\(|```|\*\*|\n", words), (entry.source, words)


def test_x41_llms_full_has_the_text_of_the_pages() -> None:
    text = HOOK.full(SITE["site_name"], FOUND)
    for entry in FOUND:
        assert (entry.text.strip() in text) is ("\n::: " not in entry.text), entry.source


def test_x41_the_configuration_for_agents_starts_a_command_that_exists() -> None:
    page = (ROOT / "docs/mcp.md").read_text()
    [block] = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    server = json.loads(block)["mcpServers"]["horsies"]
    assert server["command"].endswith("/horsies")
    name, values = parsed(server["args"])
    assert name == "mcp" and values["mask"] == ["password"] and values["enable_actions"] is False
