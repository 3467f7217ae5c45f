"""Without a PgBouncer these tests are skipped, but not where they were asked for."""

from __future__ import annotations

import pytest

from tests.pooler.support import BINARY, REQUIRED, find_pgbouncer


def test_without_pgbouncer_the_tests_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BINARY, "no-such-pgbouncer")
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no no-such-pgbouncer here"):
        find_pgbouncer()


def test_where_they_are_asked_for_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BINARY, "no-such-pgbouncer")
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="there is no no-such-pgbouncer here"):
        find_pgbouncer()
