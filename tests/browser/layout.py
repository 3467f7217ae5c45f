"""What is wrong with how a page is laid out: it is wider than the window, a text lies upon another text, or a text
leaves its card. Looked at in the browser, because only the browser knows."""

from __future__ import annotations

from playwright.sync_api import Page

# Each line of each text is a rectangle, cut to what the boxes around it let through. What is left of it after a part of
# its height is taken off, because lines may touch, must not meet another one.
LOOK = r"""
() => {
  const found = [];
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) found.push(`the page is ${wide} px wider than the window`);
  const dialog = document.querySelector("dialog[open]");
  const walker = document.createTreeWalker(dialog || document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent.trim() || !node.parentElement.checkVisibility({ visibilityProperty: true })) continue;
    if (node.parentElement.closest(".hidden-visually, .skip, option, template, script, title, .toasts")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const card = node.parentElement.closest(".card");
    for (const full of range.getClientRects()) {
      const seen = through(node.parentElement, full);
      if (!seen) continue;
      if (card) {
        const box = card.getBoundingClientRect();
        if (seen.left < box.left - 1 || seen.right > box.right + 1) found.push(`${said(node)} leaves its card`);
      }
      const trim = (seen.bottom - seen.top) * 0.3;
      const lines = { top: seen.top + trim, bottom: seen.bottom - trim };
      texts.push({ node, left: seen.left + 1, right: seen.right - 1, ...lines });
    }
  }
  texts.sort((one, other) => one.top - other.top);
  for (let i = 0; i < texts.length; i++) {
    for (let j = i + 1; j < texts.length && texts[j].top < texts[i].bottom; j++) {
      const [one, other] = [texts[i], texts[j]];
      if (one.node !== other.node && one.left < other.right && other.left < one.right)
        found.push(`${said(one.node)} lies upon ${said(other.node)}`);
    }
  }
  return [...new Set(found)].slice(0, 20);

  function said(node) { return JSON.stringify(node.textContent.trim().replace(/\s+/g, " ").slice(0, 40)); }
  function through(element, rect) {
    const seen = { left: rect.left, right: rect.right, top: rect.top, bottom: rect.bottom };
    for (let box = element; box && box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (style.overflowX === "visible" && style.overflowY === "visible") continue;
      const edge = box.getBoundingClientRect();
      seen.left = Math.max(seen.left, edge.left); seen.right = Math.min(seen.right, edge.right);
      seen.top = Math.max(seen.top, edge.top); seen.bottom = Math.min(seen.bottom, edge.bottom);
    }
    return seen.right - seen.left > 2 && seen.bottom - seen.top > 2 ? seen : null;
  }
}
"""


def faults(page: Page) -> list[str]:
    """Each fault as a sentence; none if the page is as it should be."""
    page.evaluate("document.fonts.ready")
    found: list[str] = page.evaluate(LOOK)
    return found
