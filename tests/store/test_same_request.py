"""Which stored requests equal a send (T-57): the server compares them, and no text makes it fail."""

from __future__ import annotations

import pytest
from psycopg import AsyncConnection

DEEP = "[" * 50_000


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', True),
        ('{"b": [1, 2]}', '{"b": [2, 1]}', False),
        ("[1]", "[1.0]", False),
        ('["é"]', r'["\u00e9"]', True),
        (None, "{}", True),
        ("", None, True),
        (None, '{"a": null}', False),
        (r'["\u0000"]', r'["\u0000"]', True),  # the server cannot read these, but they are equal texts
        (r'["\u0000"]', '["a"]', False),
        ("[NaN]", "[NaN]", True),
        ("[NaN]", "[1]", False),
        (DEEP, DEEP, True),
        (DEEP, "[]", False),
    ],
)
async def test_t57_json_is_compared_by_what_it_says(
    db: AsyncConnection, ours: str | None, theirs: str | None, same: bool
) -> None:
    for pair in ((ours, theirs), (theirs, ours)):
        found = await (await db.execute("SELECT horsies_same_json(%s, %s, '{}', NULL)", pair)).fetchone()
        assert found == (same,)


async def test_t57_the_trace_of_the_first_send_does_not_count(db: AsyncConnection) -> None:
    query = "SELECT horsies_same_json(%s, %s, '{}', 'trace')"
    for ours, theirs, same in (
        (None, '{"trace":{"traceparent":"00-1"}}', True),
        ('{"timeout_ms":1}', '{"timeout_ms":1,"trace":{}}', True),
        ('{"timeout_ms":1}', '{"timeout_ms":2,"trace":{}}', False),
        ("[]", '{"trace":{}}', False),
        ("1", '{"trace":{}}', False),
    ):
        assert await (await db.execute(query, [ours, theirs])).fetchone() == (same,)
