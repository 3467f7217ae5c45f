"""docs/checks.md: every code has a program with that mistake, and the check tells what the page says it tells."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest

from horsies import ErrorCode
from tests.unit.checks.examples import PAGE, Example, answer, examples

EXAMPLES = list(examples(PAGE.read_text()))
NOT_OF_A_PROGRAM = {
    "HRS-005": "nodes do not change, so only a mistake that has a code of its own leads there",
    "HRS-007": "nodes do not change, so a circle cannot be written down",
    "HRS-018": "of a start, not of a check",
    "HRS-032": "of a start, not of a check",
    "HRS-211": "of a database: tests/services/test_check_live.py",
    "HRS-218": "of a database: tests/services/test_check_live.py",
    "HRS-221": "of an environment: tests/install/test_name.py",
    "HRS-222": "of an environment: tests/install/test_name.py",
    "HRS-219": "of the way to a database: tests/pooler/test_declared_alone.py",
}


@pytest.fixture(scope="module", autouse=True)
def _earlier_definitions_are_gone() -> None:
    """`answer` looks only at what it made itself when it clears away."""
    gc.collect()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.code)
def test_m30_m11_what_the_check_says_about_a_bad_program(example: Example, tmp_path: Path) -> None:
    code, said = answer(example, tmp_path)
    assert said == example.said
    assert code == 1
    assert example.code in {str(found) for found in re.findall(r"^(?:error|warning)\[(.*?)\]", said, re.MULTILINE)}


def test_m20_every_code_has_an_example() -> None:
    shown = [example.code for example in EXAMPLES]
    assert sorted([*shown, *NOT_OF_A_PROGRAM]) == sorted(code.value for code in ErrorCode)


def test_the_lines_before_every_example_are_sound(tmp_path: Path) -> None:
    before = EXAMPLES[0].program.partition("app.workflow(")[0]
    assert answer(Example("", before, ("check", "shop"), ""), tmp_path) == (0, "")


def test_every_code_says_what_it_means() -> None:
    assert [code for code in ErrorCode if not code.meaning] == []
