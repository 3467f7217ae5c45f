"""The rules of docs/rules are defined once, and `make test` has a test of each: `test_t45_…` checks T-45,
`test_d20_d72_…` checks D-20 and D-72. Every number that is mentioned anywhere in the repository is that of a rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.architecture.source import ROOT, lines_with

TESTS = ROOT / "tests"
# One capital letter, a hyphen and digits are a rule's number and nothing else. "UTF-8" or "HRS-204" are longer words.
NUMBER = r"(?<![\w-])[A-Z]-\d+[a-z]?(?!\w|-\w)"
MENTION = re.compile(NUMBER)
SHORTENED = re.compile(NUMBER + r"(?:/|–|\.\.)\d")  # as of two numbers with one letter: nobody finds the second
DEFINITION = re.compile(r'<a id="([^"]*)"></a>\*\*([A-Z]-\d+[a-z]?)\*\*(?: ●)? ')
LEADS_TO = re.compile(r"^\[([A-Z]-\d+[a-z]?)\]: (\S+)$", re.MULTILINE)
REFERENCE = re.compile(r"\[([A-Z]-\d+[a-z]?)\]")
IN_A_NAME = re.compile(r"[a-z]\d+[a-z]?")
# A name of a module with what is assigned to it, up to the next line that is not indented.
ASSIGNED = re.compile(r"^(\w+)(?:: [^=\n]+)? = (.*(?:\n[ \])].*)*)", re.MULTILINE)
# What `make test` leaves out: what is marked slow, and what needs a variable of the environment or another program.
LEFT_OUT = re.compile(r"\bmark\.slow\b|\bmark\.skipif\(.*environ")
ELSEWHERE = ("browser",)
RETIRED = "docs/rules/index.md"


@cache
def definitions() -> list[tuple[str, str, str]]:
    """Page, anchor and number of every rule."""
    return [
        (path.name, anchor, number)
        for path in sorted((ROOT / "docs/rules").glob("*.md"))
        for anchor, number in DEFINITION.findall(path.read_text(encoding="utf-8"))
    ]


@cache
def rules() -> dict[str, str]:
    """The page of each rule."""
    return {number: page for page, _, number in definitions()}


@cache
def retired() -> set[str]:
    """The numbers of rules that are gone; only their list mentions them."""
    return set(MENTION.findall((ROOT / RETIRED).read_text(encoding="utf-8").partition("## Retired numbers")[2]))


@cache
def named() -> dict[str, list[tuple[str, bool]]]:
    """The tests that name each rule, and whether `make test` runs them."""
    found: dict[str, list[tuple[str, bool]]] = {}
    sources = [(path, path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))]
    assigned = {path: dict(ASSIGNED.findall(text)) for path, text in sources}
    left_out = {name for own in assigned.values() for name, value in own.items() if LEFT_OUT.search(value)}
    left_out -= {"pytestmark"}
    for path, text in sources:
        if path.name.startswith("test_"):
            is_fast_file = path.relative_to(TESTS).parts[0] not in ELSEWHERE
            is_fast_file &= not _is_left_out(assigned[path].get("pytestmark", ""), left_out)
            for name, is_fast in _tests(ast.parse(text).body, text.splitlines(), is_fast_file, left_out):
                for rule in _rules_of(name):
                    found.setdefault(rule, []).append((f"{path.relative_to(ROOT)}::{name}", is_fast))
    return found


def _is_left_out(decorator: str, names: set[str]) -> bool:
    """A parameter that is slow leaves the others; so does a list of them."""
    if "parametrize" in decorator:
        return False
    return bool(LEFT_OUT.search(decorator)) or bool(set(re.findall(r"\w+", decorator)) & names)


def _tests(body: list[ast.stmt], lines: list[str], is_fast: bool, left_out: set[str]) -> Iterator[tuple[str, bool]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = [" ".join(lines[one.lineno - 1 : one.end_lineno]) for one in node.decorator_list]
            fast = is_fast and not any(_is_left_out(one, left_out) for one in decorators)
            if isinstance(node, ast.ClassDef):
                yield from _tests(node.body, lines, fast, left_out)
            elif node.name.startswith("test_"):
                yield node.name, fast


def _rules_of(name: str) -> list[str]:
    """A name begins with its rules: what comes after the first other word is prose."""
    numbers = []
    for word in name.removeprefix("test_").split("_"):
        if not IN_A_NAME.fullmatch(word):
            break
        numbers.append(f"{word[0].upper()}-{word[1:]}")
    return numbers


def test_every_rule_is_defined_once_with_its_anchor() -> None:
    numbers = [number for _, _, number in definitions()]
    assert sorted({number for number in numbers if numbers.count(number) > 1}) == []
    assert [(anchor, number) for _, anchor, number in definitions() if anchor != number.lower()] == []
    assert len(numbers) > 300


def test_references_lead_to_the_rules_they_name() -> None:
    """A reference is written `[R-20]`; a line at the end of the page says where that leads."""
    wrong = []
    for path in (ROOT / "docs/rules").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        meant = {number: f"{'' if page == path.name else page}#{number.lower()}" for number, page in rules().items()}
        leads = LEADS_TO.findall(text)
        wrong += [f"{path.name}: {number} {target}" for number, target in leads if meant.get(number) != target]
        missing = set(REFERENCE.findall(LEADS_TO.sub("", text))) - {number for number, _ in leads}
        wrong += [f"{path.name}: [{number}] leads nowhere" for number in missing]
    assert wrong == []


def test_every_rule_has_a_test_that_make_test_runs() -> None:
    assert [rule for rule in rules() if not any(is_fast for _, is_fast in named().get(rule, ()))] == []


def test_no_test_names_a_rule_that_does_not_exist() -> None:
    """A typing error would otherwise leave its rule without a test, unseen."""
    assert {rule: tests for rule, tests in named().items() if rule not in rules()} == {}


def test_every_number_that_is_mentioned_is_that_of_a_rule() -> None:
    wrong = [
        f"{name}:{line} {match[0]}"
        for name, line, match in lines_with(MENTION)
        if match[0] not in rules() and not (name == RETIRED and match[0] in retired())
    ]
    wrong += [f"{name}:{line} {match[0]}" for name, line, match in lines_with(SHORTENED)]
    assert wrong == []


def test_a_retired_number_is_not_given_to_another_rule() -> None:
    assert retired() & set(rules()) == set()


def test_what_make_test_leaves_out_is_seen() -> None:
    text = """
slow_here = pytest.mark.slow("why")
gated = pytest.mark.skipif(not os.environ.get("X"), reason="asks the index")

def test_l01_one(): ...
@pytest.mark.slow("why")
def test_l02_two(): ...
@slow_here
async def test_l03_three(): ...
@gated
@pytest.mark.parametrize("n", [1, 2])
def test_l04_four(): ...
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=slow_here)])
def test_l05_some_are_fast(): ...
@pytest.mark.slow("why")
class TestAll:
    def test_l06_six(self): ...
"""
    left_out = {name for name, value in ASSIGNED.findall(text) if LEFT_OUT.search(value)}
    assert left_out == {"slow_here", "gated"}
    fast = [name for name, is_fast in _tests(ast.parse(text).body, text.splitlines(), True, left_out) if is_fast]
    assert fast == ["test_l01_one", "test_l05_some_are_fast"]
    assert _rules_of("test_d20_d72_attempts_go_with_their_task") == ["D-20", "D-72"]
    assert _rules_of("test_a_task_that_names_w50_later") == []


def test_numbers_are_told_from_other_words() -> None:
    text = "the fence (R-55/R-56) of R-44's sweep, **W-30a** [L-13a]: `T-44`. UTF-8, SHA-256, HRS-204, PEP-8, R-, r-101"
    assert MENTION.findall(text) == ["R-55", "R-56", "R-44", "W-30a", "L-13a", "T-44"]
    assert SHORTENED.search(f"R-{55}/56")
