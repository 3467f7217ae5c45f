"""axe: what keeps people from reading or using a page, by the rules of WCAG 2 of level A and AA (M-92)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

SOURCE = Path(__file__).parent / "vendor" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
RUN = """
async (levels) => (await axe.run(document, { runOnly: levels, resultTypes: ["violations"] })).violations.map((one) =>
  `${one.id}: ${one.help}: ` + one.nodes.slice(0, 5).map((node) => `${node.target} ${node.failureSummary}`).join("; "))
"""


@cache
def _source() -> str:
    return SOURCE.read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """Each violation as a text. axe is given to the page by the browser, so that the policy of the page stays."""
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(_source())
    found: list[str] = page.evaluate(RUN, LEVELS)
    return found
