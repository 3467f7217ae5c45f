"""Every route of the table, whatever it is about (M-60, M-62, M-63, M-64, M-93): a new one is checked by all of this as
soon as it is declared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from horsies.web import ViewOnly
from horsies.web.app import ENDPOINTS
from horsies.web.endpoints import Endpoint
from horsies.web.security import HEADERS, LARGEST_BODY
from tests.each import each
from tests.hostile_support import plant
from tests.json_schema import problems
from tests.services.web.conftest import THERE
from tests.web_support import (
    ACTIONS,
    ANSWERING,
    HOST,
    IN_BODY,
    INTENT,
    NEEDED,
    READS,
    Board,
    Nobody,
    a_board,
    name_of,
    path_of,
    raw,
    refusal,
    scope_of,
)

every_route = each("endpoint", ENDPOINTS, ids=name_of)
every_read = each("endpoint", READS, ids=name_of)
every_answer = each("endpoint", ANSWERING, ids=name_of)
every_action = each("endpoint", ACTIONS, ids=name_of)

# The routes of the contract, and those that are ours.
DOCUMENTED = {
    "GET meta", "GET events", "GET tasks/stats", "GET tasks/facets", "GET tasks/breakdown", "GET tasks",
    "GET tasks/{task_id}", "POST tasks/{task_id}/cancel", "GET workflows/names", "GET workflows",
    "GET workflows/{workflow_id}", "GET workflows/{workflow_id}/nodes/{index}", "POST workflows/{workflow_id}/pause",
    "POST workflows/{workflow_id}/resume", "POST workflows/{workflow_id}/cancel", "GET workers",
    "GET workers/{worker_id}/history", "GET workers/ping", "GET recovery/workers", "POST recovery/sweep",
    "GET schedules",
}  # fmt: skip
OURS = {
    "POST tasks/{task_id}/rerun", "POST tasks/{task_id}/run-now", "POST workflows/{workflow_id}/retry",
    "GET explain/{id}", "GET queues", "GET snapshot", "GET alerts",
    "GET openapi.json", "POST bulk/cancel", "POST bulk/rerun", "POST bulk/move",
    "GET tasks/{task_id}/logs", "GET statistics", "GET failures", "GET audit", "POST workers/{worker_id}/drain",
    "POST schedules/{name}/pause", "POST schedules/{name}/resume", "POST schedules/{name}/trigger",
    "POST schedules/{name}/edit",
}  # fmt: skip


def contents(url: str) -> dict[str, Any]:
    """Everything that is in the tables."""
    with psycopg.connect(url) as conn:
        names = conn.execute("SELECT relname FROM pg_class WHERE relname ~ '^horsies_' AND relkind = 'r'").fetchall()
        return {
            name: conn.execute(f"SELECT to_jsonb(t)::text FROM {name} t ORDER BY 1".encode()).fetchall()  # noqa: S608
            for (name,) in names
        }


def test_m63_the_routes_are_those_of_the_rule() -> None:
    assert {name_of(endpoint) for endpoint in ENDPOINTS} == DOCUMENTED | OURS
    assert len({name_of(endpoint) for endpoint in ENDPOINTS}) == len(ENDPOINTS)


async def test_m63_every_answer_is_what_the_document_says(board: Board) -> None:
    document = (await board.get("/api/openapi.json")).json()
    for endpoint in ANSWERING:
        answer = await board.ask(endpoint, **THERE)
        assert answer.status_code == 200, (name_of(endpoint), answer.text)
        operation = document["paths"][f"/api/{endpoint.path}"]["get"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert problems(answer.json(), schema, document) == [], name_of(endpoint)
        assert answer.content.isascii(), name_of(endpoint)


async def test_m63_the_document_has_every_route_and_what_it_refers_to(board: Board) -> None:
    document = (await board.get("/api/openapi.json")).json()
    described = {
        f"{method.upper()} {path.removeprefix('/api/')}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert described == {name_of(endpoint) for endpoint in ENDPOINTS}
    text = json.dumps(document)
    referred = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert referred <= document["components"]["schemas"].keys()
    for endpoint in ENDPOINTS:
        operation = document["paths"][f"/api/{endpoint.path}"][endpoint.method.lower()]
        named = {one["name"] for one in operation["parameters"]}
        body = operation.get("requestBody", {"content": {"application/json": {"schema": {"properties": {}}}}})
        named |= body["content"]["application/json"]["schema"]["properties"].keys()
        assert named - {"X-Horsies-Intent"} == {param.name for param in endpoint.params}
        assert all(one["description"] for one in operation["parameters"] if one["in"] != "header")
        assert {"200", "403", "503"} <= operation["responses"].keys()
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(ids) == len(set(ids))


@every_route
async def test_m62_nobody_looks_whom_the_policy_does_not_let(filled_url: str, endpoint: Endpoint) -> None:
    async with a_board(filled_url, Nobody()) as board:
        assert refusal(await board.ask(endpoint, **THERE)) == (403, "FORBIDDEN")


@every_action
async def test_m62_nobody_acts_whom_the_policy_does_not_let(filled_url: str, endpoint: Endpoint) -> None:
    before = contents(filled_url)
    async with a_board(filled_url, ViewOnly()) as board:
        assert refusal(await board.ask(endpoint, **THERE)) == (403, "FORBIDDEN")
    assert contents(filled_url) == before


@every_action
async def test_m60_nobody_acts_unless_actions_are_enabled(filled_url: str, endpoint: Endpoint) -> None:
    async with a_board(filled_url, enable_actions=False) as board:
        assert refusal(await board.ask(endpoint, **THERE)) == (403, "ACTIONS_DISABLED")


@every_action
@each(
    "headers",
    [{}, {"X-Horsies-Intent": "Action"}, {"X-Horsies-Intent": ""}, {"X-Horsies-Intent": "action, action"}],
)
async def test_m62_an_action_must_be_meant(board: Board, endpoint: Endpoint, headers: dict[str, str]) -> None:
    answer = await board.client.post(path_of(endpoint, **THERE), headers=headers)
    assert refusal(answer) == (403, "INTENT_MISSING")


@every_action
@each(
    "headers",
    [
        {"Origin": "http://example.org"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8600.example.org"},
        {"Origin": f"{HOST}@example.org"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": HOST, "Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_m93_an_action_must_come_from_our_own_origin(
    board: Board, endpoint: Endpoint, headers: dict[str, str]
) -> None:
    answer = await board.client.post(path_of(endpoint, **THERE), headers={**INTENT, **headers})
    assert refusal(answer) == (403, "WRONG_ORIGIN")


@each("since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00", "yesterday"])
async def test_m45c_m64_a_time_that_cannot_be_asked_for_is_422(board: Board, since: str) -> None:
    assert refusal(await board.get("/api/failures", params={"since": since})) == (422, "INVALID_ARGUMENT")


@every_read
@each("mode", ["no-cors", "cors", "navigate"])
async def test_m93_a_page_of_another_site_cannot_make_a_browser_ask(
    board: Board, endpoint: Endpoint, mode: str
) -> None:
    said = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": "document"}
    assert refusal(await board.ask(endpoint, headers=said, **THERE)) == (403, "WRONG_ORIGIN")


@every_route
@each("host", ["example.org", "localhost.example.org", "example.org:8600", "0", ""])
async def test_m93_other_hosts_are_refused_also_without_a_policy(board: Board, endpoint: Endpoint, host: str) -> None:
    assert refusal(await board.ask(endpoint, headers={"Host": host}, **THERE)) == (400, "UNKNOWN_HOST")


@every_route
async def test_m93_every_answer_has_the_headers_that_keep_a_browser_in_its_place(
    board: Board, endpoint: Endpoint
) -> None:
    answers = [
        await board.client.request(endpoint.method, path_of(endpoint, **THERE), headers={"Host": "example.org"}),
        await board.client.request("DELETE", path_of(endpoint, **THERE)),
        await board.client.request("HEAD", path_of(endpoint, **THERE)),
    ]
    if endpoint in ANSWERING:
        answers.append(await board.ask(endpoint, **THERE))
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "server" not in answer.headers
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


@every_route
@each("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FETCH"])
async def test_m64_other_methods_are_refused(board: Board, endpoint: Endpoint, method: str) -> None:
    answer = await board.client.request(method, path_of(endpoint, **THERE), headers={**INTENT, "Origin": HOST})
    assert refusal(answer) == (405, "METHOD_NOT_ALLOWED")
    assert endpoint.method in answer.headers["allow"]


@every_action
async def test_m64_nobody_reads_an_action(board: Board, endpoint: Endpoint) -> None:
    answer = await board.client.get(path_of(endpoint, **THERE), headers=INTENT)
    assert refusal(answer)[0] in (404, 405)


@every_answer
async def test_m64_head_is_get_without_its_body(board: Board, endpoint: Endpoint) -> None:
    path, params = path_of(endpoint, **THERE), {"group_by": "queue"} if endpoint.path == "tasks/breakdown" else None
    answer = await board.client.head(path, params=params)
    assert answer.status_code == 200 and answer.content == b""


async def test_m63_reading_changes_nothing(filled_url: str) -> None:
    before = contents(filled_url)
    async with a_board(filled_url) as board:
        for endpoint in ANSWERING:
            for _ in range(2):
                assert (await board.ask(endpoint, **THERE)).status_code == 200
            for method in ("POST", "PUT", "DELETE"):
                await board.client.request(method, path_of(endpoint, **THERE), headers=INTENT)
    assert contents(filled_url) == before


@every_route
async def test_m64_a_parameter_that_nobody_knows_is_refused(board: Board, endpoint: Endpoint) -> None:
    path = path_of(endpoint, **THERE)
    if endpoint.action is None:
        answer = await board.get(path, params={**NEEDED.get(endpoint.path, {}), "no_such_parameter": "1"})
    else:
        answer = await board.act(path, {**IN_BODY.get(endpoint.path, {}), "no_such_parameter": 1})
    assert refusal(answer) == (422, "INVALID_ARGUMENT")
    assert "no_such_parameter" in answer.json()["message"]


@every_route
async def test_m64_a_parameter_of_the_path_is_not_given_again(board: Board, endpoint: Endpoint) -> None:
    for name in endpoint.in_path:
        path = path_of(endpoint, **THERE)
        answer = await (board.act(path, {name: "x"}) if endpoint.action else board.get(path, params={name: "x"}))
        assert refusal(answer) == (422, "INVALID_ARGUMENT")


@each(
    ("path", "params"),
    [
        ("tasks", {"limit": "0"}),
        ("tasks", {"limit": "501"}),
        ("tasks", {"limit": "many"}),
        ("tasks", {"limit": "1e2"}),
        ("tasks", [("limit", "1"), ("limit", "2")]),
        ("tasks", {"offset": "-1"}),
        ("tasks", {"offset": "9" * 5_000}),
        ("tasks", {"statuses": "SLEEPING"}),
        ("tasks", {"sort_by": "result"}),
        ("tasks", {"sort_by": "ended_at"}),
        ("tasks", {"after": "not a cursor"}),
        ("tasks", {"exact": "perhaps"}),
        ("tasks", {"task_names": "x" * 1_001}),
        ("tasks", [("task_names", str(n)) for n in range(101)]),
        ("tasks", {"task_names": "\0"}),
        ("tasks", {"sent_after": "yesterday"}),
        ("tasks", {"sent_after": "2026-01-01T00:00:00"}),
        ("tasks", {"sent_before": "0001-01-01T00:00:00+14:00"}),
        ("tasks", {"id_prefix": "\0"}),
        ("tasks", {"idempotency_key": "\0"}),
        ("tasks/t-failed/logs", {"after": "1"}),
        ("tasks/t-failed/logs", {"after": "-1:0"}),
        ("tasks/t-failed/logs", {"after": "9999999999:1"}),
        ("tasks/t-failed/logs", {"after": "\u0661:\u0661"}),
        ("statistics", {"since": "2026-01-01T00:00:00"}),
        ("statistics", {"since": "0001-01-01T00:00:00+14:00"}),
        ("statistics", {"until": "9999-12-31T23:59:59-14:00"}),
        ("statistics", {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}),
        ("statistics", {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}),
        ("statistics", {"step_seconds": "90"}),
        ("statistics", {"step_seconds": "0"}),
        ("statistics", {"step_seconds": "9" * 20}),
        ("statistics", {"queues": "\0"}),
        ("workers/w1/history", {"window_seconds": "-1"}),
        ("tasks/breakdown", {}),
        ("tasks/breakdown", {"group_by": "password"}),
        ("tasks/stats", {"error_categories": "OTHER"}),
        ("workflows", {"status": "SLEEPING"}),
        ("workflows/f-running/nodes/x", {}),
        ("workflows/f-running/nodes/1.5", {}),
        ("workers/ping", {"timeout_seconds": "11"}),
        ("workers/ping", {"timeout_seconds": "nan"}),
        ("workers/w1/history", {"limit": "0"}),
        ("recovery/workers", {"threshold_seconds": "-1"}),
        ("recovery/workers", {"threshold_seconds": "inf"}),
        ("recovery/workers", {"threshold_seconds": "1e300"}),
    ],
)
async def test_m64_wrong_parameters_are_refused_in_words(board: Board, path: str, params: Any) -> None:
    answer = await board.get(f"/api/{path}", params=params)
    assert refusal(answer) == (422, "INVALID_ARGUMENT")
    assert "Traceback" not in answer.text and len(answer.text) < 1_000


@each(
    ("path", "body"),
    [
        ("tasks/t-pending/cancel", {"include_running": "yes"}),
        ("tasks/t-pending/cancel", {"include_running": 1}),
        ("tasks/t-pending/cancel", {"include_running": None}),
        ("tasks/t-pending/cancel", []),
        ("tasks/t-pending/cancel", "text"),
        ("workflows/f-failed/retry", {"node_ids": "refund"}),
        ("workflows/f-failed/retry", {"node_ids": []}),
        ("workflows/f-failed/retry", {"node_ids": [1]}),
        ("recovery/sweep", {"sweep_threshold_seconds": 0}),
        ("recovery/sweep", {"sweep_threshold_seconds": "300"}),
        ("recovery/sweep", {"recovery_delay_seconds": -1}),
        ("recovery/sweep", {"recovery_delay_seconds": 1e300}),
        ("recovery/sweep", {"dry_run": "true"}),
    ],
)
async def test_m64_wrong_bodies_are_refused_in_words(board: Board, filled_url: str, path: str, body: Any) -> None:
    before = contents(filled_url)
    assert refusal(await board.act(f"/api/{path}", body)) == (422, "INVALID_ARGUMENT")
    assert contents(filled_url) == before


@each(
    ("content", "kind", "expected"),
    [
        (b"{", "application/json", (400, "BAD_JSON")),
        (b'{"dry_run": NaN}', "application/json", (400, "BAD_JSON")),
        (b"\xff\xfe", "application/json", (400, "BAD_JSON")),
        (b"[" * 60_000, "application/json", (400, "BAD_JSON")),
        (b'{"dry_run": true}', "text/plain", (415, "UNSUPPORTED_MEDIA_TYPE")),
        (b"dry_run=true", "application/x-www-form-urlencoded", (415, "UNSUPPORTED_MEDIA_TYPE")),
        (b'{"dry_run": true}', "", (415, "UNSUPPORTED_MEDIA_TYPE")),
    ],
)
async def test_m64_a_body_is_json_and_says_so(
    board: Board, content: bytes, kind: str, expected: tuple[int, str]
) -> None:
    headers = {**INTENT, "Content-Type": kind}
    assert refusal(await board.client.post("/api/recovery/sweep", content=content, headers=headers)) == expected


@every_action
async def test_m93_a_large_body_is_refused_however_it_comes(board: Board, endpoint: Endpoint) -> None:
    large = b" " * (LARGEST_BODY + 1)
    headers = {**INTENT, "Content-Type": "application/json"}

    async def in_pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 1_000):
            yield large[start : start + 1_000]

    for content in (large, in_pieces()):
        answer = await board.client.post(path_of(endpoint, **THERE), content=content, headers=headers)
        assert refusal(answer) == (413, "BODY_TOO_LARGE")


async def test_m93_an_action_takes_nothing_from_the_query(board: Board) -> None:
    assert refusal(await board.act("/api/recovery/sweep?dry_run=true")) == (422, "INVALID_ARGUMENT")


@each(
    "path",
    [
        "/api", "/api/", "/api/tasks/", "/API/tasks", "//api/tasks", "/api//tasks", "/api/../api/tasks",
        "/api/tasks/../tasks", "/api/%2e%2e/api/tasks", "/api/tasks%2fstats%2f..", "/api/tasks/stats/x", "/api/tasks;x",
        "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/config.py", "/static//etc/passwd", "/static/",
        "/static", "/static/no-such-file", "/login", "/logout", "/templates/login.html", "/docs", "/openapi.json",
    ],
)  # fmt: skip
async def test_m64_no_path_leads_elsewhere(board: Board, path: str) -> None:
    status, headers, body = await raw(board.app, scope_of(path))
    assert status == 404 and b"import" not in body
    assert headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


@each("id_", ["no-such-id", "x" * 1_000, "%00", "%0a", "%F0%9F%90%B4", "' OR 1=1 --", "..", "%2e"])
async def test_m64_what_does_not_exist_is_404(board: Board, id_: str) -> None:
    for path in (f"tasks/{id_}", f"tasks/{id_}/logs", f"workflows/{id_}", f"workflows/{id_}/nodes/0", f"explain/{id_}"):
        answer = await board.get(f"/api/{path}")
        assert refusal(answer)[0] == 404, answer.text
    for path in (f"tasks/{id_}/cancel", f"tasks/{id_}/rerun", f"workflows/{id_}/pause", f"workflows/{id_}/retry"):
        assert refusal(await board.act(f"/api/{path}"))[0] == 404


async def test_m93_hostile_texts_come_back_as_texts_of_json(database_url: str) -> None:
    plant(database_url)
    script = "<script>alert(1)</script><!-- \u2028 --></textarea>"
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("UPDATE horsies_tasks SET task_name = %s, queue_name = %s", [script, script])
        conn.execute("UPDATE horsies_tasks SET args = %s WHERE id = 'plain0'", [json.dumps([script * 1_000])])
    there = {"task_id": "plain4", "workflow_id": "parent", "index": "0", "worker_id": "w", "id": "plain0"}
    async with a_board(database_url) as board:
        for endpoint in ANSWERING:
            answer = await board.ask(endpoint, **there)
            assert answer.status_code == 200, f"{name_of(endpoint)}: {answer.text[:300]}"
            assert answer.headers["content-type"] == "application/json"
            assert answer.content.isascii() and b"\n" not in answer.content
            answer.json()
        detail = (await board.get("/api/tasks/plain0")).json()
        assert detail["task_name"] == script and json.loads(detail["args"]) == [script * 1_000]


async def test_m64_many_requests_at_once_are_all_answered(board: Board) -> None:
    answers = await asyncio.gather(*(board.ask(endpoint, **THERE) for endpoint in ANSWERING * 3))
    assert {answer.status_code for answer in answers} == {200}


async def test_m46_exact_numbers_are_counted_for_a_few_at_a_time(board: Board) -> None:
    with board.dashboard.place_for_exact(), board.dashboard.place_for_exact():
        assert refusal(await board.get("/api/tasks", params={"exact": "true"})) == (503, "TOO_MANY_EXACT")
        assert (await board.get("/api/tasks")).status_code == 200
    answer = await board.get("/api/tasks", params={"exact": "true", "statuses": ["FAILED", "PENDING"]})
    assert answer.json()["total"] == 2 and answer.json()["total_is_exact"]


async def test_m45_filters_are_those_of_the_query_api(board: Board) -> None:
    params = [("statuses", "FAILED"), ("statuses", "EXPIRED"), ("error_categories", "DOMAIN")]
    page = (await board.get("/api/tasks", params=params)).json()
    assert [task["task_id"] for task in page["items"]] == ["t-failed"]
    first = (await board.get("/api/tasks", params={"limit": "3"})).json()
    rest = (await board.get("/api/tasks", params={"limit": "500", "after": first["next_cursor"]})).json()
    assert len({task["task_id"] for task in [*first["items"], *rest["items"]]}) == 7
