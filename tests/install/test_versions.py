"""The versions of PostgreSQL that are claimed, checked and run are the same everywhere, and `make test-versions` tells
truly what came of a run."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path

import psycopg
import pytest
import yaml

from horsies.core.schema.install import OLDEST_SERVER
from tests.architecture.source import texts
from tests.install.pins import ROOT
from tests.versions import binaries, server
from tests.versions.__main__ import OWN_SERVER, TESTS, Outcome, read_report, table, verdict

CLAIM = re.compile(r"PostgreSQL (\d+) to (\d+)")
CLAIMANTS = {"README.md", "docs/faq.md", "docs/rules/tasks.md", "docs/rules/production.md", "Makefile"}
CLEAN = Outcome("15.18", "system", 900, 0, 3, 120, is_clean=True)
BROKEN = Outcome("18.4", "npm", 899, 1, 3, 99)
MISSING = Outcome("13", why="there is no npm")


def test_o30_every_claim_is_what_is_checked_and_run() -> None:
    run = binaries.versions()
    assert run == list(range(run[0], run[-1] + 1)) and run[0] == OLDEST_SERVER
    claims = {
        f"{name}: {found[0]}": (int(found[1]), int(found[2])) for name, text in texts().items()
        for found in CLAIM.finditer(text)
    }  # fmt: skip
    assert {claim.partition(":")[0] for claim in claims} >= CLAIMANTS
    assert {claim: range_ for claim, range_ in claims.items() if range_ != (run[0], run[-1])} == {}


def test_o30_the_pipeline_runs_each_version_on_a_server_of_its_own() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["versions"]
    tags = job["strategy"]["matrix"]["postgres"]
    assert [tag.partition(".")[0] for tag in tags] == [str(major) for major in binaries.versions()]
    assert job["services"]["postgres"]["image"] == "postgres:${{ matrix.postgres }}"
    password = job["services"]["postgres"]["env"]["POSTGRES_PASSWORD"]
    assert job["env"]["HORSIES_TEST_DATABASE_URL"] == f"postgresql://postgres:{password}@localhost:5432/postgres"


def test_o30_the_tests_of_all_versions_exist() -> None:
    assert [name for name in (*TESTS, *OWN_SERVER) if not (ROOT / name).exists()] == []


def test_o30_a_table_tells_what_was_run_and_what_was_not() -> None:
    assert table([MISSING, CLEAN, BROKEN]).splitlines() == [
        "PostgreSQL  from    passed  failed  skipped  seconds",
        "13          not had: there is no npm",
        "15.18       system     900       0        3      120",
        "18.4        npm        899       1        3       99",
    ]


@pytest.mark.parametrize(
    ("outcomes", "is_chosen", "code"),
    [
        ([CLEAN], False, 0),
        ([CLEAN, MISSING], False, 0),
        ([CLEAN, MISSING], True, 1),
        ([MISSING], False, 1),
        ([CLEAN, BROKEN], False, 1),
    ],
)
def test_o30_a_run_fails_if_a_version_fails_or_was_asked_for_in_vain(
    outcomes: list[Outcome], is_chosen: bool, code: int
) -> None:
    assert verdict(outcomes, is_chosen=is_chosen) == code


def test_o30_errors_count_as_failures(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="10" failures="1" errors="2" skipped="3"/></testsuites>')
    assert read_report(report) == (4, 3, 3)


def test_o30_an_archive_that_is_not_the_pinned_one_is_refused_and_forgotten(tmp_path: Path) -> None:
    archive = tmp_path / "server.tgz"
    archive.write_bytes(b"what was reviewed")
    pinned = "sha512-" + base64.b64encode(hashlib.sha512(b"what was reviewed").digest()).decode()
    binaries.check(archive, pinned)
    archive.write_bytes(b"what somebody else has put there")
    with pytest.raises(binaries.NotHere, match=r"server\.tgz is not what binaries\.json says"):
        binaries.check(archive, pinned)
    assert not archive.exists(), "or the next run would find it again"


@pytest.mark.parametrize("major", binaries.versions())
def test_o30_every_archive_is_pinned_by_a_strong_hash(major: int) -> None:
    pinned = binaries.pins()["versions"][str(major)]
    method, _, digest = pinned["integrity"].partition("-")
    assert (method, len(base64.b64decode(digest, validate=True))) == ("sha512", 64)
    assert re.fullmatch(rf"{major}\.\d+\.\d+-\w+\.\d+", pinned["version"])


def test_o30_a_temporary_server_is_closed_to_others_and_leaves_nothing() -> None:
    installed = [major for major in binaries.versions() if list(binaries.installed(major))]
    if not installed:
        pytest.skip("no PostgreSQL is installed on this system; make test-versions fetches some")
    with server.temporary_server(installed[0]) as (url, install):
        assert install.origin == "system"
        with psycopg.connect(url) as conn:
            assert conn.info.server_version // 10_000 == installed[0]
            assert conn.execute("SHOW listen_addresses").fetchone() == ("",)
            postmaster = (conn.execute("SELECT pg_read_file('postmaster.pid')").fetchone() or [""])[0].split()
        directory = Path(postmaster[1]).parent
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(re.sub(":[0-9a-f]+@", "@", url))
        assert not Path(postmaster[1]).stat().st_mode & 0o077
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(postmaster[0]), 0)
