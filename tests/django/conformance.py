"""Django's own tests of `django.tasks` (`tests/tasks` of its source distribution), with our backend in the place of the
one that each file is about: `HorsiesBackend` in the test setting instead of `ImmediateBackend`, and on a database
instead of `DummyBackend`. Nothing else of them is changed, except that tests without a database get one.

    python -m tests.django.conformance DIRECTORY

`DIFFERENT` has the tests that say what those two backends cannot or do differently, each with the reason; they must
fail, so that the list stays true.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from horsies.core.embedded import ensure_running, stop

ROOT = Path(__file__).parents[2]
IN_A_LIST = "that backend keeps its results in a list, which the test changes"
# Two tests of the other file are about what runs at once.
AT_ONCE = [f"tasks.test_tasks.TaskTestCase.test_task_error_{name}" for name in ("invalid_exception", "unknown_module")]
DIFFERENT = {
    "ImmediateBackendTestCase.test_cannot_get_result": "ours can",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "ours can",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "ours can defer",
    "DummyBackendTestCase.test_clear": IN_A_LIST,
    "DummyBackendTestCase.test_refresh_result": IN_A_LIST,
    "DummyBackendTestCase.test_refresh_result_async": IN_A_LIST,
}
BACKENDS = '''
from horsies.contrib.django import HorsiesBackend


class ImmediateBackend(HorsiesBackend):
    """In the test setting."""


class DummyBackend(HorsiesBackend):
    """On the database, with the list of what was enqueued that the tests look at."""

    def __init__(self, alias, params):
        super().__init__(alias, params)
        self.results = []

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self):
        self.results.clear()
'''
SETTINGS = """
import os
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "horsies.contrib.django", "tasks"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "horsies", "USER": "postgres",
                         "HOST": os.environ["CONFORMANCE_HOST"]}}
HORSIES = {
    "custom_queues": [{"name": "default"}, {"name": "queue_1"}],
    "TESTING": os.environ["CONFORMANCE_MODE"] or None,
}
TASKS = {"default": {"BACKEND": "ours.DummyBackend", "QUEUES": []}}
"""


def adapted(source: Path, folder: Path) -> None:
    package = folder / "tasks"
    package.mkdir()
    for file in source.glob("*.py"):
        text = file.read_text()
        text = re.sub(r"django\.tasks\.backends\.(dummy|immediate)\b(?=\.)", "ours", text)
        text = re.sub(r"from django\.tasks\.backends\.(dummy|immediate) import", "from ours import", text)
        text = re.sub(r"\bSimpleTestCase\b", "TransactionTestCase", text)
        text = text.replace("TransactionTestCase, TransactionTestCase", "TransactionTestCase")
        (package / file.name).write_text(text)
    (folder / "ours.py").write_text(BACKENDS)
    (folder / "conformance_settings.py").write_text(SETTINGS)


def run(folder: Path, host: str, mode: str, *labels: str) -> dict[str, str]:
    """What came of each test."""
    env = {
        **os.environ, "CONFORMANCE_HOST": host, "CONFORMANCE_MODE": mode,
        "DJANGO_SETTINGS_MODULE": "conformance_settings", "PYTHONPATH": f"{folder}:{ROOT}",
    }  # fmt: skip
    command = [sys.executable, "-m", "django", "test", "--noinput", "-v2", *labels]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    found = re.findall(
        r"^(test_\w+) \(tasks\.\w+\.(\w+)\.\w+\)[^\n]*?\.\.\. (ok|FAIL|ERROR)", done.stderr, re.MULTILINE
    )
    if not found:
        raise SystemExit(done.stdout + done.stderr)
    outcomes = {f"{case}.{name}": word for name, case, word in found}
    # A test with subtests or output in between has its word on another line.
    for name, case in re.findall(r"^(?:FAIL|ERROR): (test_\w+) \(tasks\.\w+\.(\w+)\.\w+\)", done.stderr, re.MULTILINE):
        outcomes[f"{case}.{name}"] = "FAIL"
    if any(word != "ok" and name not in DIFFERENT for name, word in outcomes.items() if mode):
        print(done.stderr)
    return outcomes


def main() -> int:
    source = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(prefix="hrs", dir="/tmp") as server:
        os.chmod(server, 0o711)
        host = re.search(r"host=([^&]+)", ensure_running(server))
        assert host is not None
        adapted(source, Path(folder))
        try:
            outcomes = run(Path(folder), host[1], "", "tasks.test_dummy_backend", "tasks.test_tasks")
            outcomes |= run(Path(folder), host[1], "inline", "tasks.test_immediate_backend", *AT_ONCE)
        finally:
            stop(Path(server))
    wrong = [name for name, word in outcomes.items() if (word == "ok") == (name in DIFFERENT)]
    passed = sum(word == "ok" for word in outcomes.values())
    print(f"{passed} of Django's {len(outcomes)} tests of tasks pass; different are {len(DIFFERENT)}: {DIFFERENT}")
    for name in wrong:
        print(f"unexpected: {name} {outcomes[name]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
