"""Every rule about tasks, life cycle, schema, workers, recovery, workflows, schedules, the command line and monitoring
is named by a test: `test_t45_…` checks T-45, and `test_d20_d72_…` both. Rules whose subject does not exist yet are
listed with the reason, until they get a test.
"""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.architecture.source import ROOT

IDS = """
T-01 T-02 T-03 T-03a T-04 T-05 T-06 T-07 T-08 T-09 T-10 T-11 T-12 T-13 T-14 T-15 T-16 T-17 T-18
T-20 T-21 T-22 T-23 T-24 T-24a T-25 T-26 T-27 T-28 T-29 T-30 T-31 T-37
T-40 T-41 T-42 T-43 T-44 T-45 T-46 T-47 T-48 T-49 T-50 T-51 T-52 T-53 T-54 T-55 T-57 T-58
T-60 T-61 T-62 T-63 T-64 T-65 T-66 T-67 T-70 T-71 T-72 T-73 T-74 T-75 T-76 T-77 T-78 T-79 T-80 T-81
T-85 T-86 T-87 T-88 T-100 T-101 T-102 T-103 T-104 T-105 T-106
L-01 L-02 L-03 L-04 L-05 L-06 L-07 L-08 L-09 L-10 L-11 L-12 L-13 L-13a L-14 L-15 L-16 L-17 L-18 L-19
L-20 L-21 L-22 L-23 L-25 L-26 L-27 L-28 L-30 L-31 L-32 L-33 L-34 L-35 L-36 L-37 L-38 L-40
D-01 D-10 D-11 D-12 D-13 D-20 D-21 D-25 D-30 D-35 D-36 D-40 D-45 D-50 D-55
D-60 D-61 D-62 D-63 D-70 D-71 D-72
W-01 W-02 W-03 W-04 W-05 W-06 W-07 W-20 W-21 W-22 W-23 W-24 W-25 W-25a W-26 W-27 W-28 W-29
W-30 W-30a W-31 W-32 W-33 W-35 W-36 W-40 W-41 W-45 W-50 W-51 W-52 W-53 W-54
W-60 W-61 W-62 W-70 W-71 W-72 W-80 W-81 W-82
R-01 R-02 R-03 R-04 R-05 R-06 R-07 R-08 R-09 R-10 R-11 R-12 R-13 R-14 R-15 R-16 R-17 R-18 R-19 R-20 R-21 R-22
R-23 R-30 R-31 R-32 R-33 R-34 R-35 R-36 R-37 R-38 R-40 R-41 R-42 R-43 R-44 R-45 R-46 R-47 R-48 R-49 R-50 R-51
R-52 R-53 R-54 R-55 R-56 R-57 R-58 R-60 R-61 R-62 R-63 R-65 R-66 R-67 R-68 R-69 R-70 R-71 R-72 R-73 R-74 R-75
R-76 R-77 R-80 R-81 R-82 R-83 R-84 R-85 R-90 R-91 R-92 R-93 R-94 R-95 R-96 R-97 R-98 R-99 R-100 R-101 R-102
R-103
F-01 F-02 F-03 F-04 F-05 F-06 F-07 F-08 F-09 F-10 F-11 F-12 F-20 F-21 F-22 F-30 F-31 F-32 F-33 F-34 F-35 F-36
F-37 F-38 F-40 F-41 F-42 F-43 F-44 F-50 F-51 F-52 F-53 F-54 F-60 F-61 F-62 F-63 F-64 F-65 F-70 F-71 F-72 F-75
F-76 F-80 F-81 F-82 F-83 F-84 F-85 F-86 F-87 F-90 F-91 F-92 F-94 F-95 F-96
S-01 S-02 S-03 S-04 S-10 S-11 S-12 S-13 S-14 S-15 S-16 S-17 S-18 S-19 S-20 S-21 S-22 S-23 S-24
S-30 S-31 S-32 S-33 S-34 S-35 S-36 S-37 S-38 S-39 S-40 S-41 S-42 S-43
M-01 M-02 M-03 M-04 M-05 M-06 M-07 M-08 M-09 M-10 M-11 M-12 M-13 M-20 M-21 M-22 M-30
M-40 M-41 M-45 M-46 M-47 M-48 M-49
"""
RULES = IDS.split()
EXEMPT = {
    "M-05": "there is no `horsies web` yet",
    "M-06": "there is no `horsies tui` yet",
}
ID = re.compile(r"[tldwrfsm]\d+[a-z]?")


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
    rules = []
    for word in name.removeprefix("test_").split("_"):
        if not ID.fullmatch(word):
            break
        rules.append(f"{word[0].upper()}-{word[1:]}")
    return rules


def test_every_rule_is_named_by_a_test() -> None:
    assert [rule for rule in RULES if rule not in named() and rule not in EXEMPT] == []


def test_exemptions_are_rules_that_no_test_names() -> None:
    assert set(EXEMPT) <= set(RULES)
    assert {rule: tests for rule, tests in named().items() if rule in EXEMPT} == {}


def test_no_test_names_a_rule_that_does_not_exist() -> None:
    """A typing error would otherwise leave its rule without a test, unseen."""
    assert {rule: tests for rule, tests in named().items() if rule not in RULES} == {}


def test_names_are_read_as_they_are_meant() -> None:
    assert _rules_of("test_d20_d72_attempts_go_with_their_task") == ["D-20", "D-72"]
    assert _rules_of("test_w30a_async_tasks") == ["W-30a"]
    assert _rules_of("test_a_task_that_names_w50_later") == []
