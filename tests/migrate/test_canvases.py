"""A chain, a group or a chord that is not converted stays byte for byte, with all that is asked of its result, and the
report has one line about it (X-42)."""

from __future__ import annotations

import pytest

from horsies.migrate.findings import FindingKind
from tests.each import each
from tests.migrate.support import converted
from tests.migrate.test_celery import TASKS

START = "def start(vs):\n    {}\n"


def left(code: str) -> None:
    """Nothing of it is changed, no import is added, and one thing is said: at the line of the canvas."""
    text, done = converted(f"{TASKS}{code}")
    assert text.endswith(f"\n{code}")
    assert "from horsies" not in text
    [said] = [one for one in done.findings if one.path == "shop/tasks.py"]
    assert said.kind is FindingKind.BY_HAND
    assert "a.s(1" in f"{TASKS}{code}".splitlines()[said.line - 1]


CANVASES = [
    "chain(a.s(1), b.s(2)).delay()",
    "chain(a.s(1), b.s(2)).apply_async()",
    "chain(a.s(1), b.s(2))()",
    "(a.s(1) | b.s(2))()",
    "chord([a.s(1), a.s(2)])(b.s(3))",
    "chord([a.s(1), a.s(2)], b.s(3)).delay()",
    "(group(a.s(1), a.s(2)) | b.s(3)).apply_async()",
    "group(a.s(1), unknown)()",
    "group([a.s(1), *vs]).apply_async()",
]
ASKED = [
    ".get(timeout=10)",
    ".get()",
    ".join(timeout=3)",
    ".successful()",
    ".id",
    ".parent.get(timeout=3)",
    ".revoke(terminate=True)",
    "",
]


@each("asked", ASKED)
@each("canvas", CANVASES)
def test_x42_a_canvas_inside_of_another_expression_stays_with_its_tail(canvas: str, asked: str) -> None:
    left(START.format(f"print({canvas}{asked})"))


@each(
    "statement",
    [
        "return lambda: chain(a.s(1), b.s(2))().get(timeout=3)",
        "return [chain(a.s(1), b.s(v))().get(timeout=3) for v in vs]",
        "for one in chain(a.s(1), b.s(2))().get(timeout=3):\n        print(one)",
        "if vs: chain(a.s(1), b.s(2))().get(timeout=3)",
        "x: int = chain(a.s(1), b.s(2))().get(timeout=3)",
        "return chain(a.s(1), b.s(*vs))().get(timeout=3)",
        "return chain(a.s(1), b.s(2), b.s(*vs))().get(timeout=3)",
        "return chain(a.s(1), b.s(2)).apply_async(countdown=3).get(timeout=3)",
        "return chain(a.s(1), unknown)().get(timeout=3)",
        "return chord([a.s(1), b.s(2, 3)])(b.s(3)).get(timeout=3)",
        "return chord([a.s(1), a.s(2)], unknown)().get(timeout=3)",
        "return chord([a.s(1), a.s(2)], b.s(*vs))().get(timeout=3)",
        "return group(a.s(1).set(queue=v) for v in vs)().get(timeout=3)",
        "print(chain(a.s(1),  # first\n        b.s(2))().get(timeout=3))",
    ],
)
def test_x42_a_canvas_that_is_not_clear_stays_with_its_tail(statement: str) -> None:
    left(START.format(statement))


@each("many", ["map(vs)", "starmap(vs)", "chunks(vs, 3)"])
@each("start", ["()", ".delay()", ".apply_async()", ".apply_async(countdown=3)"])
def test_x42_many_calls_of_a_task_stay_with_what_is_asked_of_them(many: str, start: str) -> None:
    code = START.format(f"r = a.{many}{start}\n    print(r.id, r.get(timeout=3), a.{many}{start}.join(timeout=3))")
    text, done = converted(f"{TASKS}{code}")
    assert text.endswith(f"\n{code}")
    assert [(one.kind, one.line) for one in done.findings if one.path == "shop/tasks.py"] == [
        (FindingKind.BY_HAND, 15),
        (FindingKind.BY_HAND, 16),
    ]


@each("asked", [one for one in ASKED if one])
@each(
    "canvas",
    [
        "chain(a.s(1), b.s(*vs))()",
        "(a.s(1) | unknown).delay()",
        "chord([a.s(1), b.s(2, 3)])(b.s(3))",
        "chord((a.s(1, y=v, **v) for v in vs), b.s(1)).apply_async()",
        "group(a.s(1), unknown)()",
        "group(a.s(1, *v).set(queue='x') for v in vs).apply_async()",
    ],
)
def test_x42_a_name_for_the_result_of_a_canvas_that_is_left_stays_too(canvas: str, asked: str) -> None:
    left(START.format(f"r = {canvas}\n    work()\n    print(r{asked})\n    return r"))
    left(START.format(f"r = other = {canvas}\n\n    def later():\n        return other{asked}, r{asked}"))


@each("canvas", ["chain(a.s(1), b.s(2))()", "chord([a.s(1), a.s(2)])(b.s(3))"])
def test_x42_a_canvas_of_a_module_stays_with_its_tail_and_its_name(canvas: str) -> None:
    left(f"{canvas}.get(timeout=3)\n")
    left(f"r = {canvas}\nr.get(timeout=3)\n\n\ndef later():\n    return r.get(timeout=3), r.id\n")
    left(f"class C:\n    r = {canvas}\n    x = r.get(timeout=3)\n")


def test_x42_a_name_for_a_canvas_that_is_left_and_for_another_one_stays_and_is_said() -> None:
    code = "r = chain(a.s(1), b.s(*vs))()\n    if vs:\n        r = chain(a.s(1), b.s(2))()\n    return r.get(timeout=3)"
    text, done = converted(f"{TASKS}{START.format(code)}")
    assert "    r = chain(a.s(1), b.s(*vs))()\n" in text and "    return r.get(timeout=3)\n" in text
    assert "        r = app.workflow(" in text
    found = [(one.kind, one.line) for one in done.findings if one.path == "shop/tasks.py"]
    assert found == [(FindingKind.BY_HAND, 15), (FindingKind.DIFFERS, 17)]  # it is passed on


def test_x42_a_group_is_converted_wherever_it_is() -> None:
    text, done = converted(f"{TASKS}print(group(a.s(1), a.s(2))().get())\n")
    assert text.endswith("print([one.result() for one in [a.send_or_raise(1), a.send_or_raise(2)]])\n")
    assert done.by_hand == []


def test_x42_a_send_among_the_arguments_of_a_canvas_that_is_left_is_converted() -> None:
    text, done = converted(f"{TASKS}{START.format('print(chain(a.s(a.delay(3).id), b.s(2))().get(timeout=3))')}")
    assert "    print(chain(a.s(a.send_or_raise(3).task_id), b.s(2))().get(timeout=3))\n" in text
    assert len(done.by_hand) == 1


@pytest.mark.parametrize("given", ["(1,), link=b.s(2)", "(1,), link_error=b.s(2)", "*vs", "args=5", "**vs"])
@pytest.mark.parametrize("asked", [".get(timeout=3)", ".id", ".revoke()", ".successful()", ""])
def test_x42_a_send_that_is_left_stays_with_what_is_asked_of_it(given: str, asked: str) -> None:
    for statement in (
        f"print(a.apply_async({given}){asked})",
        f"r = a.apply_async({given})\n    work()\n    return r{asked}",
    ):
        code = START.format(statement)
        text, done = converted(f"{TASKS}{code}")
        assert text.endswith(f"\n{code}")
        [said] = [one for one in done.findings if one.path == "shop/tasks.py"]
        assert said.kind is FindingKind.BY_HAND and said.line == 15 and "apply_async" in said.what
