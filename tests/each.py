"""Tables of cases that one test goes through. `pytest.mark.parametrize` makes an item of each case, with fixtures of
its own, and every process of a run collects them all; where the cases need nothing of their own, `each` is the same
table in one item. All cases run, and what fails is named by its case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


def each(
    names: str | Iterable[str], cases: Iterable[Any], *, ids: Callable[[Any], str] | Iterable[str] = repr
) -> Callable[[Test], Test]:
    """Call the test with every case, as `pytest.mark.parametrize` would. Fixtures are shared by all cases. `ids` names
    the cases, or makes their names."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = list(cases)
    names_of = [functools.partial(ids, case) for case in cases] if callable(ids) else [name.__str__ for name in ids]
    values_of = [dict(zip(keys, [case] if len(keys) == 1 else case, strict=True)) for case in cases]
    table = list(zip(names_of, values_of, strict=True))
    assert table, f"there are no cases of {keys}"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        assert set(keys) <= signature.parameters.keys(), f"the test does not take {keys}"
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run(*args: Any, **given: Any) -> None:
                failures: list[Exception] = []
                for name, values in table:
                    with _noted(failures, name):
                        await test(*args, **given, **values)
                _tell(failures)

        else:

            @functools.wraps(test)
            def run(*args: Any, **given: Any) -> None:
                failures: list[Exception] = []
                for name, values in table:
                    with _noted(failures, name):
                        test(*args, **given, **values)
                _tell(failures)

        kept = [parameter for parameter in signature.parameters.values() if parameter.name not in keys]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate


@contextmanager
def _noted(failures: list[Exception], name: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except Exception as failure:
        failure.add_note(f"in the case of {name()[:300]}")
        failures.append(failure)
    except BaseException as stop:
        stop.add_note(f"in the case of {name()[:300]}")
        raise


def _tell(failures: list[Exception]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} cases failed", failures)
