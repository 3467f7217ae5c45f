"""The versions of PostgreSQL that are claimed, checked and run are the same everywhere; servers that are fetched are
those that were reviewed, and a temporary server is closed to others."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path

import psycopg
import pytest

from horsies.core.schema.install import OLDEST_SERVER
from tests.architecture.source import texts
from tests.versions import binaries, server

CLAIM = re.compile(r"PostgreSQL (\d+)(?: to |–)(\d+)")


def test_o30_every_claim_is_what_is_checked_and_run() -> None:
    run = binaries.versions()
    assert run == list(range(run[0], run[-1] + 1)) and run[0] == OLDEST_SERVER
    claims = {
        f"{name}: {found[0]}": (int(found[1]), int(found[2])) for name, text in texts().items()
        for found in CLAIM.finditer(text)
    }  # fmt: skip
    assert claims
    assert {claim: range_ for claim, range_ in claims.items() if range_ != (run[0], run[-1])} == {}


def test_o30_an_archive_that_is_not_the_pinned_one_is_refused_and_forgotten(tmp_path: Path) -> None:
    archive = tmp_path / "server.tgz"
    archive.write_bytes(b"what was reviewed")
    pinned = "sha512-" + base64.b64encode(hashlib.sha512(b"what was reviewed").digest()).decode()
    binaries.check(archive, pinned)
    archive.write_bytes(b"what somebody else has put there")
    with pytest.raises(binaries.NotHere, match=r"server\.tgz is not what binaries\.json says"):
        binaries.check(archive, pinned)
    assert not archive.exists(), "or the next run would find it again"


def test_o30_every_archive_is_pinned_by_a_strong_hash() -> None:
    for major in binaries.versions():
        check_pin(major, binaries.pins()["versions"][str(major)])


def check_pin(major: int, pinned: dict[str, str]) -> None:
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
