// A Neon-compatible endpoint in front of the embedded Postgres: `POST /sql` for one statement or a
// batch in a transaction. The caller's own user and password reach Postgres, so roles hold here as
// on Neon. It is our own by decision: Neon Local is a Docker image that wants an account, and
// `npm start` needs neither.

import http from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";

/** A running endpoint. */
export interface NeonEndpoint {
  port: number;
  /** From now on statements may only read, or, with false, write again. */
  readOnly(isReadOnly: boolean): void;
  close(): Promise<void>;
}

interface Statement {
  query: string;
  params?: unknown[];
}

const BODY_BYTES_MAX = 64 * 1024 * 1024;
const CONNECTIONS_PER_ROLE_MAX = 16;
/** Who waits longer for a connection has given up. */
const CONNECTION_MS_MAX = 12_000;
const ISOLATION: Readonly<Record<string, string>> = {
  ReadUncommitted: "READ UNCOMMITTED",
  ReadCommitted: "READ COMMITTED",
  RepeatableRead: "REPEATABLE READ",
  Serializable: "SERIALIZABLE",
};
/** Fields of a Postgres error that Neon passes on. */
const ERROR_FIELDS = [
  "severity",
  "code",
  "detail",
  "hint",
  "position",
  "internalPosition",
  "internalQuery",
  "where",
  "schema",
  "table",
  "column",
  "dataType",
  "constraint",
  "file",
  "line",
  "routine",
] as const;
/** Values stay Postgres' own text; the driver in the Worker parses them, as it does with Neon. */
const asText: pg.CustomTypesConfig = {
  getTypeParser: () => (value: unknown) => value,
};

/** Starts the endpoint on a free loopback port, or on `port`. */
export async function startNeonEndpoint(postgresPort: number, port = 0): Promise<NeonEndpoint> {
  const pools = new Map<string, pg.Pool>();
  let onlyReads = false;
  const server = http.createServer((request, response) => {
    const way: Way = {
      poolOf: (url) => poolFor(pools, url, postgresPort),
      onlyReads,
      assertAwaited: () => {
        if (response.destroyed) throw new Error("nobody waits for the answer any more");
      },
    };
    answer(request, way).then(
      (body) => send(response, 200, body),
      (thrown: unknown) => send(response, statusOf(thrown), errorBody(asDiskFull(thrown, way))),
    );
  });
  server.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(port, "127.0.0.1", resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    readOnly: (isReadOnly) => {
      onlyReads = isReadOnly;
    },
    close: async () => {
      await new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      });
      await Promise.all([...pools.values()].map((pool) => pool.end()));
    },
  };
}

/** Never dials anything but the embedded server, whatever host the connection string names. */
function poolFor(pools: Map<string, pg.Pool>, connectionString: string, port: number): pg.Pool {
  const { username, password, pathname } = new URL(connectionString);
  const key = `${username}:${password}${pathname}`;
  const known = pools.get(key);
  if (known) return known;
  const pool = new pg.Pool({
    host: "127.0.0.1",
    port,
    user: decodeURIComponent(username),
    password: decodeURIComponent(password),
    database: pathname.slice(1),
    max: CONNECTIONS_PER_ROLE_MAX,
    connectionTimeoutMillis: CONNECTION_MS_MAX,
  });
  // A connection that breaks tells whoever uses it by the statement; as an event it is heard here.
  pool.on("connect", (client) => client.on("error", () => {}));
  // An idle connection that breaks is replaced by the pool; statements in flight report their own
  // error.
  pool.on("error", () => {});
  pools.set(key, pool);
  return pool;
}

/** How a request reaches the database. */
interface Way {
  poolOf: (url: string) => pg.Pool;
  onlyReads: boolean;
  /** Fails where the caller is gone: what was not begun for him is not, and not committed. */
  assertAwaited: () => void;
}

async function answer(request: http.IncomingMessage, way: Way) {
  if (request.method !== "POST" || !/^\/sql\/?$/.test(request.url ?? "")) {
    throw Object.assign(new Error("not found"), { status: 404 });
  }
  const header = (name: string) => request.headers[name] as string | undefined;
  const connectionString = header("neon-connection-string");
  if (!connectionString)
    throw Object.assign(new Error("missing Neon-Connection-String"), { status: 400 });
  const pool = way.poolOf(connectionString);
  const asArrays = header("neon-array-mode") === "true";
  const body = (await readJson(request)) as Statement & { queries?: Statement[] };
  const isolation = ISOLATION[header("neon-batch-isolation-level") ?? ""];
  const begin = [
    "BEGIN",
    isolation && `ISOLATION LEVEL ${isolation}`,
    (way.onlyReads || header("neon-batch-read-only") === "true") && "READ ONLY",
    header("neon-batch-deferrable") === "true" && "DEFERRABLE",
  ];
  // Where statements may only read, a single one needs a transaction that says so.
  const inTransaction = body.queries !== undefined || way.onlyReads;
  const client = await pool.connect();
  const run = async (statement: Statement) => {
    way.assertAwaited();
    return execute(client, statement, asArrays);
  };
  if (!inTransaction) return run(body).finally(() => client.release());
  const statements = body.queries ?? [body];
  const results = await transact(client, begin.filter(Boolean).join(" "), async () => {
    const done = [];
    for (const statement of statements) done.push(await run(statement));
    way.assertAwaited();
    return done;
  });
  return body.queries ? { results } : results[0];
}

/** Does work in a transaction of a client, which is released. */
async function transact<Result>(client: pg.PoolClient, begin: string, work: () => Promise<Result>) {
  let broken: Error | undefined;
  try {
    await client.query(begin);
    const result = await work();
    await client.query("COMMIT");
    return result;
  } catch (thrown) {
    await client.query("ROLLBACK").catch((failed: Error) => {
      broken = failed;
    });
    throw thrown;
  } finally {
    client.release(broken);
  }
}

async function execute(client: pg.PoolClient, statement: Statement, asArrays: boolean) {
  const result = await client.query({
    text: statement.query,
    values: statement.params ?? [],
    types: asText,
    ...(asArrays ? { rowMode: "array" as const } : {}),
  } as pg.QueryConfig);
  const { command, rowCount, rows, fields } = result;
  return { command, rowCount, rowAsArray: asArrays, rows, fields };
}

async function readJson(request: http.IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_BYTES_MAX)
      throw Object.assign(new Error("request body too large"), { status: 413 });
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

function send(response: http.ServerResponse, status: number, body: unknown) {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(body));
}

const statusOf = (thrown: unknown) => ((thrown as { status?: number }).status ?? 400) || 400;

/** A write that was refused since statements may only read failed for want of room. */
function asDiskFull(thrown: unknown, { onlyReads }: Way): unknown {
  const { code, message } = thrown as { code?: string; message?: string };
  return onlyReads && code === "25006"
    ? Object.assign(new Error(`the disk is full: ${message}`), { code: "53100" })
    : thrown;
}

/**
 * A failed connection gets the SQL state for it, since Node's own codes mean nothing to a SQL
 * client.
 */
function errorBody(thrown: unknown) {
  const error = thrown as Error & Partial<Record<(typeof ERROR_FIELDS)[number], unknown>>;
  const fields = Object.fromEntries(ERROR_FIELDS.map((name) => [name, error[name] ?? null]));
  const isState = typeof fields.code === "string" && /^[0-9A-Z]{5}$/.test(fields.code);
  return { message: error.message, ...fields, code: isState ? fields.code : "08006" };
}
