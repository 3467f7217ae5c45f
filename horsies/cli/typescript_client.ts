/** A value that a task takes or returns where its code does not say more. */
export type JsonValue = null | boolean | number | string | JsonValue[] | { [name: string]: JsonValue };

/** Runs one statement with its values: `pg`, `postgres.js` and serverless drivers all have such a function. */
export type Query = (
  text: string,
  values: unknown[],
) => Promise<{ rows: Record<string, unknown>[] } | Iterable<Record<string, unknown>>>;

export type TaskName = keyof Tasks & string;

/** The id of a task, which knows what kind of task it is. At run time it is a plain text. */
export type TaskId<Name extends TaskName = TaskName> = string & { readonly __task?: Name };

export interface SendOptions {
  queue?: string;
  /** From 1, served first, to 100. */
  priority?: number;
  /** Seconds until the task is due. */
  delay?: number;
  /** The task is not started after this time. */
  goodUntil?: Date;
  /** A second send with the same key and the same arguments is the same task. */
  idempotencyKey?: string;
}

export type Ended<Value> =
  | { taskId: string; taskName: string; status: "COMPLETED"; ended: true; value: Value }
  | {
      taskId: string;
      taskName: string;
      status: "FAILED" | "CANCELLED" | "EXPIRED";
      ended: true;
      error: { code: string | null; message: string | null };
    };

export type TaskState<Value> =
  | Ended<Value>
  | { taskId: string; taskName: string; status: "PENDING" | "CLAIMED" | "RUNNING"; ended: false };

export interface WaitOptions {
  /** Milliseconds to wait at most; without it, as long as it takes. */
  timeout?: number;
  /** Ends a pause early: resolve it when the channel `task_done` has named the task. Without it, the client only looks. */
  wake?: (taskId: string) => Promise<unknown>;
  /** Milliseconds between two looks in the end; the first ones are shorter. */
  longestPause?: number;
}

/** The task has not ended in time; it goes on. */
export class WaitTimeout extends Error {
  taskId: string;
  constructor(taskId: string) {
    super(`task ${taskId} has not ended in time`);
    this.name = "WaitTimeout";
    this.taskId = taskId;
  }
}

/** There is no such task, or this role may not read it. */
export class UnknownTask extends Error {
  taskId: string;
  constructor(taskId: string) {
    super(`there is no task ${taskId}, or this role may not read it`);
    this.name = "UnknownTask";
    this.taskId = taskId;
  }
}

const SEND =
  "SELECT horsies_send($1::text, $2::text::jsonb, queue_name => $3::text, priority => $4::text::int, " +
  "delay => make_interval(secs => $5::text::float8), good_until => $6::text::timestamptz, idempotency_key => $7::text) AS id";
const RESULT =
  "SELECT task_id, task_name, status, is_terminal, value::text AS value, error_code, error_message FROM horsies_result($1::text)";

export class Client {
  private query: Query;

  constructor(query: Query) {
    this.query = query;
  }

  /** Send a task; inside a transaction of `query`, it is sent when that commits. */
  async send<Name extends TaskName>(
    name: Name,
    args: Tasks[Name]["arguments"],
    options: SendOptions = {},
  ): Promise<TaskId<Name>> {
    const values = [
      name,
      JSON.stringify(args),
      options.queue ?? null,
      options.priority === undefined ? null : String(options.priority),
      options.delay === undefined ? null : String(options.delay),
      options.goodUntil === undefined ? null : options.goodUntil.toISOString(),
      options.idempotencyKey ?? null,
    ];
    const [row] = await this.rows(SEND, values);
    return String(row!.id) as TaskId<Name>;
  }

  /** What has become of a task; null if there is none, or if this role may not read it. */
  async result<Name extends TaskName>(id: TaskId<Name>): Promise<TaskState<Tasks[Name]["result"]> | null> {
    const [row] = await this.rows(RESULT, [id]);
    if (row === undefined) return null;
    const about = { taskId: String(row.task_id), taskName: String(row.task_name) };
    const status = row.status as TaskState<unknown>["status"];
    switch (status) {
      case "COMPLETED": {
        if (row.value === null) throw new Error(`task ${id}: ${row.error_message}`);
        return { ...about, status, ended: true, value: JSON.parse(String(row.value)) };
      }
      case "PENDING":
      case "CLAIMED":
      case "RUNNING":
        return { ...about, status, ended: false };
      default: {
        const error = { code: textOf(row.error_code), message: textOf(row.error_message) };
        return { ...about, status, ended: true, error };
      }
    }
  }

  /** Wait for the end of a task. It looks again after pauses that grow, or when `wake` says so. */
  async wait<Name extends TaskName>(id: TaskId<Name>, options: WaitOptions = {}): Promise<Ended<Tasks[Name]["result"]>> {
    const until = Date.now() + (options.timeout ?? Infinity);
    for (let pause = 25; ; pause = Math.min(pause * 2, options.longestPause ?? 1000)) {
      const woken = options.wake?.(id);
      woken?.catch(() => undefined); // if the task has ended, nobody looks at it any more: it must not end the program
      const found = await this.result(id);
      if (found === null) throw new UnknownTask(id);
      if (found.ended) return found;
      const left = until - Date.now();
      if (left <= 0) throw new WaitTimeout(id);
      await firstOf(Math.min(pause, left), woken);
    }
  }

  private async rows(text: string, values: unknown[]): Promise<Record<string, unknown>[]> {
    const found = await this.query(text, values);
    return Array.from("rows" in found ? found.rows : found);
  }
}

function textOf(value: unknown): string | null {
  return value === null || value === undefined ? null : String(value);
}

/** The time is over, or somebody was woken; the timer does not keep the program alive afterwards. */
async function firstOf(pause: number, woken: Promise<unknown> | undefined): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, pause);
  });
  try {
    await Promise.race(woken === undefined ? [over] : [over, woken]);
  } finally {
    clearTimeout(timer);
  }
}
