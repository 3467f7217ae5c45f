"""Every command as a user types it, with the mistakes users make. The worker has a file of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from horsies.core.schema.install import SCHEMA_VERSION
from tests.e2e.cli_support import APP, Started, run

NOWHERE = "postgresql://me:topsecret@127.0.0.1:1/none"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's directory: `shop.py`, the same in a package, and a module without any app."""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").touch()
    (tmp_path / "store" / "shop.py").write_text(APP)
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "two.py").write_text(APP + "\nother = Horsies(app.config)\n")
    return tmp_path


def scalar(url: str, query: str) -> object:
    with psycopg.connect(url) as conn:
        row = conn.execute(query.encode()).fetchone()
        return row[0] if row else None


def test_the_console_script_is_the_same_as_the_module(project: Path) -> None:
    script = Path(sys.executable).parent / "horsies"
    said = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == run("--version", cwd=project).stdout == f"horsies {version('horsies-pg')}\n"


@pytest.mark.parametrize("command", [("worker",), ("init-db",), ("send", "x")])
def test_m01_all_commands_find_their_app_alike(project: Path, command: tuple[str, ...]) -> None:
    name, *rest = command
    assert run(name, "store.shop.py", *rest, cwd=project).stderr.startswith("error[HRS-207]: ")


def test_m22_a_sound_app_is_told_in_one_line(project: Path) -> None:
    assert run("check", "shop", cwd=project).stdout == "ok: 2 tasks, 0 workflows, 0 builders, 0 schedules\n"


def test_m20_m30_every_mistake_is_told_and_counted(project: Path) -> None:
    (project / "bad.py").write_text(APP + '\napp.discover_tasks(["broken1.py", "broken2"])\n')
    (project / "broken1.py").write_text("\nraise RuntimeError('first')\n")
    (project / "broken2.py").write_text("import no_such_library\n")
    checked = run("check", "bad", cwd=project)
    assert checked.returncode == 1
    assert checked.stderr.count("error[HRS-210]: ") == 2
    assert "broken1.py:2\n" in checked.stderr
    assert "2 | raise RuntimeError('first')\n" in checked.stderr
    assert checked.stderr.rstrip().endswith("error: 2 problems in the check")
    assert checked.stdout == ""


def test_m20_live_asks_the_database(project: Path, database_url: str) -> None:
    assert run("check", "shop", cwd=project, SHOP_DATABASE_URL=NOWHERE).returncode == 0
    dead = run("check", "shop", "--live", cwd=project, SHOP_DATABASE_URL=NOWHERE)
    assert dead.returncode == 1
    assert "error[HRS-211]: " in dead.stderr
    assert "topsecret" not in dead.stderr
    assert run("check", "shop", "--live", cwd=project, SHOP_DATABASE_URL=database_url).returncode == 0


def test_a_thread_of_the_users_module_does_not_keep_the_command(project: Path) -> None:
    (project / "busy.py").write_text(
        APP + "\nimport threading, time\nthreading.Thread(target=time.sleep, args=(300,)).start()\n"
    )
    assert run("check", "busy", cwd=project).returncode == 0


def test_m12_errors_are_coloured_as_the_environment_says(project: Path) -> None:
    assert "\x1b[" not in run("check", "empty", cwd=project).stderr
    assert "\x1b[" in run("check", "empty", cwd=project, HORSIES_FORCE_COLOR="1", NO_COLOR="1").stderr


def test_m07_init_db_creates_the_schema_of_the_apps_database(project: Path, empty_database_url: str) -> None:
    first = run("init-db", "shop", cwd=project, SHOP_DATABASE_URL=empty_database_url)
    assert (first.returncode, first.stdout) == (0, f"schema version {SCHEMA_VERSION} created (notify: always)\n")
    assert "the app's own" in first.stderr
    recorded = "SELECT value FROM horsies_meta WHERE key = 'schema_version'"
    assert str(scalar(empty_database_url, recorded)) == str(SCHEMA_VERSION)
    again = run("init-db", "shop", cwd=project, SHOP_DATABASE_URL=empty_database_url)
    assert (again.returncode, again.stdout) == (0, f"schema version {SCHEMA_VERSION} is in place (notify: always)\n")


def test_m07_init_db_without_a_module_uses_the_environment(project: Path, empty_database_url: str) -> None:
    done = run("init-db", cwd=project, DATABASE_URL=with_password(empty_database_url, "hushhush"))
    assert done.returncode == 0, done.stderr
    assert "(DATABASE_URL)" in done.stderr
    assert "hushhush" not in done.stderr + done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert scalar(empty_database_url, "SELECT count(*) FROM horsies_tasks") == 0


def test_m07_init_db_leaves_a_notify_mode_that_nobody_asked_to_change(project: Path, database_url: str) -> None:
    (project / "quiet.py").write_text(
        "import os\nfrom horsies import AppConfig, Horsies, PostgresConfig\n"
        "app = Horsies(AppConfig(broker=PostgresConfig(database_url=os.environ['URL'], notify='when_waiting')))\n"
    )
    changed = run("init-db", "quiet", cwd=project, URL=database_url)
    assert changed.stdout.endswith("(notify: when_waiting, changed from always)\n")
    assert run("init-db", cwd=project, DATABASE_URL=database_url).stdout.endswith("(notify: when_waiting)\n")


@pytest.mark.parametrize(
    ("url", "code"),
    [(NOWHERE, "HRS-211"), ("mysql://me:topsecret@h/x", "HRS-203"), ("postgresql://u:a@topsecret@h/", "HRS-2")],
)
def test_a_database_that_cannot_be_used_is_said_without_its_password(project: Path, url: str, code: str) -> None:
    for args in (("init-db", "--database-url", url), ("demo", "--database-url", url)):
        refused = run(*args, cwd=project)
        assert refused.returncode == 1
        assert f"error[{code}" in refused.stderr
        assert "topsecret" not in refused.stderr + refused.stdout
        assert "Traceback" not in refused.stderr


def test_init_db_without_anything_uses_the_embedded_server_and_says_so(short_directory: Path) -> None:
    done = run("init-db", cwd=short_directory)
    assert done.returncode == 0, done.stderr
    sentence = f"database: embedded PostgreSQL in {short_directory}/.horsies/postgres (DATABASE_URL is not set)"
    assert done.stderr == f"{sentence}; creating it there, which takes a few seconds the first time\n"
    assert done.stdout == f"schema version {SCHEMA_VERSION} created (notify: always)\n"
    assert run("init-db", cwd=short_directory).stderr == f"{sentence}\n", "the second time nothing is created"


def test_send_prints_the_id_of_the_new_row(project: Path, database_url: str) -> None:
    sent = run(
        "send", "shop", "shop.price", "--kwargs", '{"order": {"id": 1, "items": ["a"]}}', cwd=project,
        SHOP_DATABASE_URL=database_url,
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    task_id = sent.stdout.strip()
    assert scalar(database_url, "SELECT id || ' ' || status FROM horsies_tasks") == f"{task_id} PENDING"
    assert json.loads(str(scalar(database_url, "SELECT kwargs FROM horsies_tasks"))) == {
        "order": {"id": 1, "items": ["a"]}
    }


def test_send_takes_another_database_by_its_option(project: Path, database_url: str) -> None:
    sent = run(
        "send", "shop", "shop.refuse", "--args", '["no"]', "--database-url", database_url, cwd=project,
        SHOP_DATABASE_URL=NOWHERE,
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    assert scalar(database_url, "SELECT args FROM horsies_tasks") == '["no"]'


def test_send_waits_for_the_result_and_its_exit_code_is_that_of_the_task(project: Path, database_url: str) -> None:
    with Started("worker", "shop", cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        good = run(
            "send", "shop", "shop.price", "--args", '[{"id": 1, "items": ["a", "b"]}]', "--kwargs", '{"discount": 0.5}',
            "--wait", "--timeout", "30s", cwd=project, SHOP_DATABASE_URL=database_url,
        )  # fmt: skip
        bad = run(
            "send", "shop", "shop.refuse", "--kwargs", '{"reason": "closed"}', "--wait", cwd=project,
            SHOP_DATABASE_URL=database_url,
        )  # fmt: skip
        assert worker.stop() == 0
    assert (good.returncode, json.loads(good.stdout)) == (0, {"ok": 10.0})
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["err"]["error_code"] == "REFUSED"
    assert "sent shop.refuse as " in bad.stderr and "no worker is registered" not in bad.stderr


def test_send_stops_waiting_when_the_time_is_over(project: Path, database_url: str) -> None:
    late = run(
        "send", "shop", "shop.refuse", "--args", '["x"]', "--wait", "--timeout", "0.2", cwd=project,
        SHOP_DATABASE_URL=database_url,
    )  # fmt: skip
    assert late.returncode == 1
    assert "WAIT_TIMEOUT" in late.stdout
    assert late.stderr.count("no worker is registered") == 1


@pytest.mark.parametrize(
    ("task", "kwargs", "words"),
    [
        ("shop.prise", "{}", "did you mean shop.price, shop.refuse?"),
        ("mail", "{}", "shop.price, shop.refuse"),
        ("shop.price", "{}", "order"),
        ("shop.price", '{"order": {"id": "x"}}', "order"),
        ("shop.price", '{"order": {"id": 1}, "colour": 2}', "unknown argument 'colour'"),
        ("shop.price", '{"order": {"id": 1}, "discont": 2}', "did you mean 'discount'?"),
        ("shop.price", '{"order": {"id": "1"}}', "order.id: Input should be a valid integer"),
        ("shop.price", '{"order": {"id": 1}, "discount": "0.5"}', "discount: Input should be a valid number"),
        ("shop.refuse", '{"reason": 5}', "reason: Input should be a valid string"),
    ],
)
def test_m16_send_refuses_what_cannot_run(project: Path, database_url: str, task: str, kwargs: str, words: str) -> None:
    refused = run("send", "shop", task, "--kwargs", kwargs, cwd=project, SHOP_DATABASE_URL=database_url)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error[HRS-")
    assert words in refused.stderr
    assert scalar(database_url, "SELECT count(*) FROM horsies_tasks") == 0


def test_send_to_a_database_that_is_away_fails_readably(project: Path) -> None:
    refused = run("send", "shop", "shop.refuse", "--args", '["x"]', cwd=project, SHOP_DATABASE_URL=NOWHERE)
    assert refused.returncode == 1
    assert "error: the task was not sent: " in refused.stderr
    assert "ENQUEUE_FAILED" in refused.stderr
    assert "topsecret" not in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """Not pytest's own: that one is closed to the user who runs the embedded server for root."""
    from horsies.core.embedded import stop

    directory = Path(tempfile.mkdtemp(prefix="hsc-")).resolve()
    directory.chmod(0o711)
    yield directory
    stop(directory / ".horsies/postgres")
    shutil.rmtree(directory)


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}:{password}@{parts.hostname or ''}").geturl()
