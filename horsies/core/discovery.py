"""Finds and imports the modules that define tasks.

A dotted entry is imported by name, an entry that ends in `.py` by its path. A file that can be reached from `sys.path`
gets the name it has there, so that another import finds the same module and nothing is defined twice.
"""

import glob
import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, SourceLocation

# These errors mean that a module does something on import: it sends, starts a workflow, or runs a worker.
_SIGNS_OF_A_SCRIPT = ("SEND_SUPPRESSED", "asyncio.run() cannot be called")
_GUARD = 'put the code of the script under `if __name__ == "__main__":`, because workers import the same file'


def expand_globs(patterns: list[str]) -> list[str]:
    """Entries for `import_entry`, sorted, each once: the Python files that match the patterns, except tests, and every
    entry that is no pattern, as it is."""
    found = {entry for pattern in patterns for entry in (_matches(pattern) if _is_pattern(pattern) else [pattern])}
    return sorted(found)


def import_entry(entry: str) -> ModuleType:
    """Import one entry. HRS-206 if there is no such module or file; an exception of the module becomes HRS-210 with the
    place in the user's code."""
    if entry.endswith(".py") and not Path(entry).is_file():
        raise missing_error(f"there is no file {entry!r} in {os.getcwd()}")
    try:
        return _import_file(Path(entry)) if entry.endswith(".py") else importlib.import_module(entry)
    except HorsiesError:
        raise
    except (Exception, SystemExit) as problem:
        missing = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if missing is None or not f"{entry}.".startswith(f"{missing}."):
            raise module_error(entry, problem) from problem  # the module exists, perhaps without what it imports
        no_such = missing_error(f"there is no module named {missing!r}")
        raise no_such.with_note(f"looked for on sys.path; the current directory is {os.getcwd()}") from None


def missing_error(message: str) -> ConfigurationError:
    """The error for a module or a file that is not found."""
    return ConfigurationError(message, code=ErrorCode.CLI_INVALID_ARGS)


def module_error(entry: str, problem: BaseException) -> ConfigurationError:
    """The error for a module that cannot be imported."""
    from horsies.core.models.workflow.results import NOTHING_IS_STARTED

    error = exec_error(f"module {entry!r} failed on import", problem)
    is_script = any(sign in str(problem) for sign in (NOTHING_IS_STARTED, *_SIGNS_OF_A_SCRIPT))
    return error.with_help(_GUARD) if is_script else error


def exec_error(what: str, problem: BaseException) -> ConfigurationError:
    """The error for code of the user that fails while it is loaded."""
    text = str(problem)
    return ConfigurationError(
        f"{what}: {type(problem).__name__}{': ' + text if text else ''}",
        code=ErrorCode.MODULE_EXEC_ERROR,
        location=SourceLocation.of_exception(problem),
    )


def _is_pattern(entry: str) -> bool:
    return any(mark in entry for mark in "*?[") and not os.path.isfile(entry)


def _matches(pattern: str) -> list[str]:
    found = glob.glob(pattern, recursive=True)
    return [path for path in found if path.endswith(".py") and os.path.isfile(path) and not _is_test(path)]


def _is_test(path: str) -> bool:
    """Whether the file belongs to a test suite; a worker must not import such files."""
    name = os.path.basename(path)
    return name == "conftest.py" or name.startswith("test_") or name.endswith("_test.py")


def _import_file(path: Path) -> ModuleType:
    file, as_given = path.resolve(), Path(os.path.abspath(path))
    own_name = f"_horsies_{file.stem}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:12]}"
    loaded = _already_loaded(file, as_given, own_name)
    if loaded is not None:
        return loaded
    name = _dotted_name(file)
    if name is not None:
        module = importlib.import_module(name)
        if _is_file_of(module, file):
            return module
    return _load(file, own_name)


def _load(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _already_loaded(file: Path, as_given: Path, own_name: str) -> ModuleType | None:
    """The module of this file, under any name that an import can have given it by one of its paths. The names are tried
    one by one: a child that read all modules would copy megabytes of memory that it shares with the other children."""
    names = []
    for path in (file, as_given):
        parts = path.parent.parts[1:] if path.name == "__init__.py" else path.with_suffix("").parts[1:]
        names += [".".join(parts[start:]) for start in reversed(range(len(parts)))]
    for name in ("__main__", own_name, *names):
        module = sys.modules.get(name)
        if module is not None and _is_file_of(module, file):
            return module
    return None


def _is_file_of(module: ModuleType, file: Path) -> bool:
    known = getattr(module, "__file__", None)
    return isinstance(known, str) and Path(known).resolve() == file


def _dotted_name(file: Path) -> str | None:
    """The name under which `sys.path` reaches the file, by the nearest root; None if it cannot be reached."""
    for root in sorted({Path(entry or ".").resolve() for entry in sys.path}, key=lambda p: -len(p.parts)):
        if root in file.parents:
            parts = file.relative_to(root).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            importable = bool(parts) and all(part.isidentifier() for part in parts)
            packages = [root.joinpath(*parts[:depth]) for depth in range(1, len(parts))]
            # The author did not make packages of folders without __init__.py, and their names could clash.
            if importable and all((package / "__init__.py").is_file() for package in packages):
                return ".".join(parts)
    return None
