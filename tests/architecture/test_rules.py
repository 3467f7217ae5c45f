"""The rules of docs/rules, and what refers to them.

A rule is defined once, with an anchor of its own, and is named by a test: `test_t45_…` checks T-45, `test_d20_d72_…`
checks D-20 and D-72. Every number that is mentioned anywhere in the repository is that of a rule.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.architecture.source import ROOT, lines_with, texts

PAGES = ROOT / "docs" / "rules"
# One capital letter, a hyphen and digits are a rule's number and nothing else. "UTF-8" or "HRS-204" are longer words.
NUMBER = r"(?<![\w-])[A-Z]-\d+[a-z]?(?!\w|-\w)"
MENTION = re.compile(NUMBER)
SHORTENED = re.compile(NUMBER + r"(?:/|–|\.\.)\d")  # as of two numbers with one letter: nobody finds the second
DEFINITION = re.compile(r'<a id="([^"]*)"></a>\*\*([A-Z]-\d+[a-z]?)\*\*(?: ●)? ')
ANCHOR = re.compile(r"<a id=")
BOLD_NUMBER = re.compile(r"\*\*[A-Z]-\d+[a-z]?\*\*")
LEADS_TO = re.compile(r"^\[([A-Z]-\d+[a-z]?)\]: (\S+)$", re.MULTILINE)
REFERENCE = re.compile(r"\[([A-Z]-\d+[a-z]?)\]")
PREFIXES = re.compile(r"^\| \[[^\]]+\]\((\S+\.md)\) \|.*\| ([A-Z](?:, [A-Z])*) \|$", re.MULTILINE)
IN_A_NAME = re.compile(r"[a-z]\d+[a-z]?")


@dataclass(frozen=True)
class Page:
    """A page of rules. `definitions` are pairs of anchor and number, in their order."""

    name: str
    text: str

    @property
    def definitions(self) -> list[tuple[str, str]]:
        return DEFINITION.findall(self.text)

    @property
    def numbers(self) -> list[str]:
        return [number for _, number in self.definitions]


@cache
def pages() -> dict[str, Page]:
    """The pages that define rules: all but the index."""
    found = (Page(path.name, path.read_text(encoding="utf-8")) for path in sorted(PAGES.glob("*.md")))
    return {page.name: page for page in found if page.name != "index.md"}


@cache
def rules() -> dict[str, str]:
    """The page of each rule."""
    return {number: page.name for page in pages().values() for number in page.numbers}


@cache
def named() -> dict[str, list[str]]:
    """The tests that name each rule. A name begins with its rules: what comes after the first other word is prose."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for rule in _rules_of(node.name):
                    found.setdefault(rule, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def _rules_of(name: str) -> list[str]:
    numbers = []
    for word in name.removeprefix("test_").split("_"):
        if not IN_A_NAME.fullmatch(word):
            break
        numbers.append(f"{word[0].upper()}-{word[1:]}")
    return numbers


def _place(number: str) -> tuple[str, int, str]:
    letter, digits, suffix = re.fullmatch(r"([A-Z])-(\d+)([a-z]?)", number).groups()  # type: ignore[union-attr]
    return letter, int(digits), suffix


def test_there_is_a_page_for_each_prefix_of_the_index() -> None:
    listed = PREFIXES.findall((PAGES / "index.md").read_text(encoding="utf-8"))
    of_pages = {page.name: list(dict.fromkeys(number[0] for number in page.numbers)) for page in pages().values()}
    assert {name: prefixes.split(", ") for name, prefixes in listed} == of_pages
    letters = [letter for prefixes in of_pages.values() for letter in prefixes]
    assert len(letters) == len(set(letters)), "a prefix belongs to one page"


@pytest.mark.parametrize("name", sorted(pages()))
def test_every_rule_of_a_page_has_its_anchor(name: str) -> None:
    page = pages()[name]
    assert [(anchor, number) for anchor, number in page.definitions if anchor != number.lower()] == []
    assert len(page.definitions) == len(ANCHOR.findall(page.text)) == len(BOLD_NUMBER.findall(page.text))


def test_every_rule_is_defined_once() -> None:
    numbers = [number for page in pages().values() for number in page.numbers]
    assert sorted({number for number in numbers if numbers.count(number) > 1}) == []


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_rules_of_a_page_are_in_the_order_of_their_numbers(name: str) -> None:
    numbers = pages()[name].numbers
    letters = list(dict.fromkeys(number[0] for number in numbers))
    assert numbers == sorted(numbers, key=lambda number: (letters.index(number[0]), *_place(number)))


@pytest.mark.parametrize("name", sorted(pages()))
def test_references_of_a_page_lead_to_the_rules_they_name(name: str) -> None:
    """A reference is written `[R-20]`; a line at the end of the page says where that leads."""
    text = pages()[name].text
    leads = LEADS_TO.findall(text)
    meant = {number: f"{'' if page == name else page}#{number.lower()}" for number, page in rules().items()}
    assert [(number, target) for number, target in leads if meant.get(number) != target] == []
    assert sorted(number for number, _ in leads) == sorted(set(REFERENCE.findall(LEADS_TO.sub("", text))))


@pytest.mark.parametrize("name", sorted(pages()))
def test_numbers_on_a_page_are_definitions_or_references(name: str) -> None:
    rest = REFERENCE.sub("", LEADS_TO.sub("", DEFINITION.sub("", pages()[name].text)))
    assert MENTION.findall(rest) == []


def test_every_rule_is_named_by_a_test() -> None:
    assert [rule for rule in rules() if rule not in named()] == []


def test_no_test_names_a_rule_that_does_not_exist() -> None:
    """A typing error would otherwise leave its rule without a test, unseen."""
    assert {rule: tests for rule, tests in named().items() if rule not in rules()} == {}


def test_every_number_that_is_mentioned_is_that_of_a_rule() -> None:
    unknown = [f"{name}:{line} {match[0]}" for name, line, match in lines_with(MENTION) if match[0] not in rules()]
    assert unknown == []


def test_numbers_are_written_out() -> None:
    assert [f"{name}:{line} {match[0]}" for name, line, match in lines_with(SHORTENED)] == []


def test_mentions_are_looked_for_everywhere() -> None:
    assert {"docs", "horsies", "tests"} <= {name.partition("/")[0] for name, _, _ in lines_with(MENTION)}
    assert {"benchmarks", "deploy", "examples", "CHANGELOG.md"} <= {name.partition("/")[0] for name in texts()}


def test_names_are_read_as_they_are_meant() -> None:
    assert _rules_of("test_d20_d72_attempts_go_with_their_task") == ["D-20", "D-72"]
    assert _rules_of("test_w30a_async_tasks") == ["W-30a"]
    assert _rules_of("test_a_task_that_names_w50_later") == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("the fence (R-55/R-56) of R-44's sweep, R-50..R-54 and M-40 to M-49", "R-55 R-56 R-44 R-50 R-54 M-40 M-49"),
        ("**W-30a** [L-13a]: `T-44`, T-45.", "W-30a L-13a T-44 T-45"),
        ("UTF-8, SHA-256, HRS-204, ISO-8859-1, 2026-11-16T-09, PEP-8, r-101, R_101, R-, [A-Z]-9x", ""),
    ],
)
def test_numbers_are_told_from_other_words(text: str, numbers: str) -> None:
    assert MENTION.findall(text) == numbers.split()
    assert SHORTENED.findall(text) == []


@pytest.mark.parametrize("joint", ["/", "–", ".."])
def test_shortened_numbers_are_seen(joint: str) -> None:
    assert SHORTENED.search(f"R-{55}{joint}56")
