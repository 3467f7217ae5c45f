"""horsies is a task queue and workflow engine on PostgreSQL.

Nothing is loaded before it is used: a program that only sends tasks does not load the code of a worker. Each public
name is imported from its module at its first use. The names are in `_public.py`.
"""

from importlib import import_module
from importlib.machinery import PathFinder
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horsies._public import *  # noqa: F403


def names_of(listing: str) -> dict[str, str]:
    """The names that the imports of a module bring, each with the module it comes from. None of these is imported: the
    code of `listing` runs with an import that only writes down what it is asked for."""
    found: dict[str, str] = {}

    def note(module: str, _globals: Any, _locals: Any, names: tuple[str, ...], _level: int) -> Any:
        found.update(names_of(module) if names == ("*",) else dict.fromkeys(names, module))
        return SimpleNamespace(__all__=(), **dict.fromkeys(names))

    # Without the hooks of other programs, such as pytest's, whose loaders do not give the code away.
    spec = PathFinder.find_spec(listing, __path__)  # noqa: F405
    code = spec.loader.get_code(listing)  # type: ignore[union-attr]
    exec(code, {"__builtins__": {"__import__": note}})
    return found


_MODULE_OF = names_of("horsies._public")


if not TYPE_CHECKING:  # a checker that saw this function would accept every name
    __all__ = sorted(_MODULE_OF)

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(_MODULE_OF[name])
        except ImportError:
            import_module("horsies.core.libpq")  # raises a clearer error if libpq is what is missing
            raise
        found = globals()[name] = getattr(module, name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
