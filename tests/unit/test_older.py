"""Arguments of older versions of a task (O-32), without a database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from horsies import AppConfig, Horsies, PostgresConfig, WorkflowMeta
from horsies.core.codec.shapes import CodecError
from horsies.core.errors import TaskDefinitionError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def app() -> Horsies:
    return Horsies(AppConfig(broker=PostgresConfig(database_url="postgresql://localhost/none")))


def v1(name: str) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    return {"first": first, "last": last}


def v2(first: str, *, surname: str) -> tuple[str, str]:
    return first, surname


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ('["a","b"]', None, (("a", "b"), {})),
        ('["a b"]', None, ((), {"first": "a", "last": "b"})),
        (None, '{"name":"a b"}', ((), {"first": "a", "last": "b"})),
        ('["a"]', '{"surname":"b"}', (("a", "b"), {})),
    ],
)
def test_o32_the_first_signature_that_fits_reads_them(
    app: Horsies, args: str | None, kwargs: str | None, expected: Any
) -> None:
    @app.task("greet", accepts=[v1, v2])
    def greet(first: str, last: str) -> str:
        return f"{first} {last}"

    assert greet.codec.arguments.decode(args, kwargs) == expected
    with pytest.raises(CodecError, match="nor do they fit one of the older signatures"):
        greet.codec.arguments.decode("[1, 2, 3]", None)


def test_o32_what_an_older_signature_returns_is_checked(app: Horsies) -> None:
    def broken(a: int) -> dict[str, Any]:
        return {"first": 1 / (a - 1)}

    def wrong(a: str) -> Any:
        return a

    @app.task("greet", accepts=[broken, wrong])
    def greet(first: str, last: str) -> str:
        return first + last

    wrong_ones = {"[1]": "broken .* raised ZeroDivisionError", "[3]": "missing argument", '["x"]': "returned str"}
    for args, said in wrong_ones.items():
        with pytest.raises(CodecError, match=said):
            greet.codec.arguments.decode(args, None)


def test_o32_values_of_the_workflow_engine_are_kept(app: Horsies) -> None:
    def before(number: int) -> dict[str, Any]:
        return {"text": str(number)}

    @app.task("node", accepts=[before])
    def node(text: str, workflow_meta: WorkflowMeta | None = None) -> str:
        return text

    meta = '{"workflow_id":"w","task_index":3,"task_name":"node"}'
    _, kwargs = node.codec.arguments.decode(None, f'{{"number":7,"workflow_meta":{meta}}}')
    assert kwargs["text"] == "7" and kwargs["workflow_meta"].workflow_id == "w"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accepts": v1}, "accepts must be a list of functions"),
        ({"accepts": ["v1"]}, "must be a plain function"),
        ({"on_undecodable": "drop"}, "'fail' or 'leave'"),
    ],
)
def test_o32_t21_a_wrong_option_is_refused_when_the_task_is_defined(
    app: Horsies, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(TaskDefinitionError, match=said):

        @app.task("greet", **options)
        def greet(first: str) -> str:
            return first


def test_o32_the_example_of_the_page_reads_what_was_sent_before() -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/deploys.md").read_text(), re.DOTALL)
    page: dict[str, Any] = {"__name__": "deploys_page"}
    exec(code, page)
    greet = page["greet"]
    args, kwargs = greet.codec.arguments.decode('["Ada Lovelace"]', None)
    assert greet(*args, **kwargs).unwrap() == "hello Ada Lovelace"
    assert greet.leave_undecodable_ms == 600_000
