"""Modules are imported at their first use, by whichever thread comes first. Two threads that import two modules of one
circle of imports wait for each other, and Python then gives one of them half a module, or an error.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from itertools import takewhile

import horsies
from tests.architecture.source import Import, Module, imported_modules, modules

MODULE_OF = horsies._MODULE_OF
# All public names, each by a thread of its own.
AT_ONCE = """
import sys, threading
import horsies
sys.setswitchinterval(1e-6)
start = threading.Barrier(len(horsies.__all__))
failed = []
def use(name):
    start.wait()
    try:
        getattr(horsies, name)
    except BaseException as problem:
        failed.append((name, problem))
threads = [threading.Thread(target=use, args=[name]) for name in horsies.__all__]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(str(failed) if failed else 0)
"""


def at_import(module: Module) -> list[Import]:
    return [one for one in module.imports if not one.inside and not one.for_types]


def needed(module: Module) -> set[str]:
    """The modules that are imported before this one is ready. Public names of packages that import nothing themselves
    come from where `horsies` has them."""
    found = set()
    for one in at_import(module):
        for name in one.names or ("",):
            deeper = f"{one.module}.{name}"
            is_lazy = is_package(one.module) and name in MODULE_OF and one.module not in eager()
            found.add(deeper if deeper in modules() else MODULE_OF[name] if is_lazy else one.module)
    return found & modules().keys()


def is_package(name: str) -> bool:
    return name in modules() and modules()[name].path.name == "__init__.py"


@cache
def eager() -> dict[str, Module]:
    """Packages that import their own modules: with them they are one, because nothing of them is ready earlier."""
    return {
        name: module
        for name, module in modules().items()
        if is_package(name) and any(one.module.startswith(f"{name}.") for one in at_import(module))
    }


def whole(name: str) -> str:
    return next((package for package in eager() if name.startswith(f"{package}.")), name)


def test_modules_do_not_import_in_circles() -> None:
    graph = {
        name: {target for one, target in imported_modules(module) if not one.inside and not one.for_types}
        for name, module in modules().items()
    }
    TopologicalSorter(graph).prepare()


def test_packages_do_not_import_in_circles() -> None:
    graph: dict[str, set[str]] = {}
    for name, module in modules().items():
        graph.setdefault(whole(name), set()).update({whole(other) for other in needed(module)} - {whole(name)})
    TopologicalSorter(graph).prepare()


def test_a_package_that_imports_its_modules_is_imported_before_them() -> None:
    wrong = []
    for name, module in modules().items():
        for package in eager():
            if name == package or name.startswith(f"{package}."):
                continue
            below = [one for one in module.imports if not one.for_types and one.module.startswith(f"{package}.")]
            for one in below:
                before = takewhile(lambda other: other.line < one.line, module.imports)  # noqa: B023
                if not any(other.module == package for other in before):
                    wrong.append(f"{name}:{one.line} imports {one.module}")
    assert wrong == []


def test_threads_may_use_every_name_at_the_same_moment() -> None:
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
