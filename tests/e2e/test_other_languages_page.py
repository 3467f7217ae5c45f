"""The pages about other languages run: their SQL in `psql`, their TypeScript in node, their Go where
`make test-languages` wants it; all of it against a worker that serves the tasks of the page. That target also checks
the TypeScript with its compiler and runs it with the driver that the page names, which it gets from npm."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from horsies.cli.typescript import client_of
from horsies.core.tasks.documents import document_of
from tests.e2e.page_support import ROOT, ours, served
from tests.e2e.test_typescript import NODE, WIRE, needs_node, write
from tests.psql_support import PSQL, psql
from tests.support import eventually
from tests.worker_support import Rows

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
asks_npm = pytest.mark.slow("asks npm for TypeScript and a driver")
PACKAGES = ("typescript@5", "pg@8", "@types/node@22", "@types/pg@8")
# What the page imports from npm, over the driver of our own test.
STAND_IN = """
import { Connection } from "./wire.ts";

const place = process.argv.slice(2) as [string, string, string];

class Lazy {
  opened = Connection.open(...place);
  async query(text: string, values: unknown[] = []) { return (await this.opened).query(text, values); }
  async connect() { await this.opened; }
  async end() { (await this.opened).socket.end(); }
  on(_: "notification", hear: (note: { payload?: string }) => void) {
    void this.opened.then((one) => { one.onNotification = (_channel, payload) => hear({ payload }); });
  }
}

class Made extends Lazy { constructor(_: object) { super(); } }

export default { Pool: Made, Client: Made };
"""
# A driver for database/sql that has psql do the work.
GO_DRIVER = """
package main

import (
    "database/sql"
    "database/sql/driver"
    "encoding/csv"
    "errors"
    "fmt"
    "io"
    "os/exec"
    "regexp"
    "strconv"
    "strings"
    "time"
)

type psqlDriver struct{}
type psqlConn struct{ url string }
type psqlStmt struct{ conn psqlConn; text string }
type psqlRows struct{ all [][]string }

func init() { sql.Register("psql", psqlDriver{}) }

func (psqlDriver) Open(url string) (driver.Conn, error) { return psqlConn{url}, nil }
func (c psqlConn) Prepare(text string) (driver.Stmt, error) { return psqlStmt{c, text}, nil }
func (psqlConn) Close() error                               { return nil }
func (psqlConn) Begin() (driver.Tx, error)                  { return nil, errors.New("no transactions") }
func (psqlStmt) Close() error                               { return nil }
func (psqlStmt) NumInput() int                              { return -1 }
func (psqlStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.New("no exec") }

func (s psqlStmt) Query(values []driver.Value) (driver.Rows, error) {
    text := regexp.MustCompile(`\\$\\d+`).ReplaceAllStringFunc(s.text, func(place string) string {
        at, _ := strconv.Atoi(place[1:])
        switch value := values[at-1].(type) {
        case nil:
            return "NULL"
        case time.Time:
            return "'" + value.Format(time.RFC3339Nano) + "'"
        default:
            return "'" + strings.ReplaceAll(fmt.Sprint(value), "'", "''") + "'"
        }
    })
    command := exec.Command("PSQL", "--no-psqlrc", "-qt", "--csv", "-v", "ON_ERROR_STOP=1", s.conn.url)
    command.Stdin = strings.NewReader(text + ";")
    out, err := command.Output()
    if err != nil {
        return nil, err
    }
    all, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
    return &psqlRows{all}, err
}

func (r *psqlRows) Columns() []string { return make([]string, len(r.all[0])) }
func (r *psqlRows) Close() error      { return nil }
func (r *psqlRows) Next(into []driver.Value) error {
    if len(r.all) == 0 {
        return io.EOF
    }
    for at, value := range r.all[0] {
        switch value {
        case "":
            into[at] = nil
        case "t", "f":
            into[at] = value == "t"
        default:
            into[at] = value
        }
    }
    r.all = r.all[1:]
    return nil
}
"""


def code_of(page: str, language: str) -> list[str]:
    text = (ROOT / f"docs/{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def shop(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The app of the page, and a worker for it."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    [source] = ours("other-languages")
    with served("shop_of_languages", source, database_url, tmp_path) as module:
        yield module


def place_of(url: str) -> list[str]:
    info = conninfo_to_dict(url)
    if not str(info.get("host", "")).startswith("/"):
        pytest.skip("the driver of this test wants a local socket")
    return [f"{info['host']}/.s.PGSQL.{info['port']}", str(info["user"]), str(info["dbname"])]


def node(folder: Path, *words: str) -> str:
    assert NODE is not None
    environment = {**os.environ, "NODE_NO_WARNINGS": "1"}
    ran = subprocess.run(
        [NODE, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def write_typescript(shop: ModuleType, folder: Path, driver: str) -> None:
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "tasks.ts").write_text(client_of(document_of(shop.app.tasks)))
    (folder / "wire.ts").write_text(WIRE)
    (folder / "pg.ts").write_text(STAND_IN)
    (folder / "page.ts").write_text("\n".join(code_of("typescript", "ts")).replace('from "pg"', f'from "{driver}"'))


@pytest.mark.slow("runs the code of a documentation page")
async def test_x40_the_sql_of_the_page_runs(shop: Any, database_url: str, rows: Rows) -> None:
    for script in code_of("other-languages", "sql"):
        psql(database_url, script)

    async def values() -> list[Any] | None:
        found = await rows.all("SELECT r.* FROM horsies_tasks t, horsies_result(t.id) r WHERE t.queue_name = 'mail'")
        return [row["value"] for row in found] if all(row["is_terminal"] for row in found) else None

    assert await eventually(values) == ["1 to a@b"] * 2
    [later] = await rows.all("SELECT queue_name, priority, max_retries FROM horsies_tasks WHERE queue_name = 'slow'")
    assert later == {"queue_name": "slow", "priority": 5, "max_retries": 2}


@needs_node
async def test_x40_the_typescript_of_the_page_runs(shop: Any, database_url: str, tmp_path: Path) -> None:
    write_typescript(shop, tmp_path, "./pg.ts")
    said = await asyncio.to_thread(node, tmp_path, "page.ts", *place_of(database_url))
    assert said.splitlines() == ["1 to a@b", "COMPLETED"]


@asks_npm
async def test_x40_the_compiler_and_the_driver_of_npm_agree(
    shop: Any, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = shutil.which("npm")
    if npm is None or NODE is None:
        pytest.skip("there is no npm")
    write(tmp_path)  # the client of every kind of type, and the program that uses it
    everything = tmp_path / "everything.ts"
    (tmp_path / "tasks.ts").rename(tmp_path / "every_kind.ts")
    everything.write_text((tmp_path / "main.ts").read_text().replace("./tasks.ts", "./every_kind.ts"))
    (tmp_path / "main.ts").unlink()
    write_typescript(shop, tmp_path, "pg")
    install = [npm, "install", "--no-audit", "--no-fund", *PACKAGES]
    await asyncio.to_thread(subprocess.run, install, cwd=tmp_path, check=True, timeout=200, capture_output=True)
    strict = (
        "--noEmit", "--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes",
        "--allowImportingTsExtensions", "--module", "nodenext", "--target", "es2022", "--types", "node",
    )  # fmt: skip
    await asyncio.to_thread(node, tmp_path, "node_modules/typescript/bin/tsc", *strict, "everything.ts", "page.ts")
    wrong = 'import { Client } from "./tasks.ts";\nnew Client(null!).send("mail.send", { copies: 1 });\n'
    (tmp_path / "wrong.ts").write_text(wrong)
    with pytest.raises(AssertionError, match=r"is missing in type"):
        await asyncio.to_thread(node, tmp_path, "node_modules/typescript/bin/tsc", *strict, "wrong.ts")
    info = conninfo_to_dict(database_url)
    monkeypatch.setenv("DATABASE_URL", f"postgresql://{info['user']}@/{info['dbname']}?host={info['host']}")
    assert (await asyncio.to_thread(node, tmp_path, "page.ts")).splitlines() == ["1 to a@b", "COMPLETED"]


@asks_npm
async def test_x40_the_go_of_the_page_runs(shop: Any, database_url: str, tmp_path: Path) -> None:
    """With the standard library, and a driver that calls psql: pgx cannot be had everywhere."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    folder = tmp_path / "go"
    folder.mkdir()
    [program] = code_of("go", "go")
    (folder / "main.go").write_text(program)
    (folder / "driver.go").write_text(GO_DRIVER.replace("PSQL", str(PSQL)))
    (folder / "go.mod").write_text("module shop\n\ngo 1.19\n")
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "on"}
    for words in (("vet", "."), ("run", ".", "psql", database_url)):
        ran = await asyncio.to_thread(
            subprocess.run, [go, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.strip() == "1 to a@b"
