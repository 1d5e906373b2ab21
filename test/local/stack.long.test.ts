// The one command, run as a user runs it: what it prints, what it refuses, and what is left after
// any of its processes is killed in the middle of an ingest.

import * as fs from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { operatorAt, operatorOf } from "../../edge/local/operator.ts";
import { startPostgres, superuser } from "../../edge/local/postgres.ts";
import { prepareState, removeState, stateAt } from "../../edge/local/state.ts";
import { decodeInline, type Inline } from "../../edge/markets/store/segment.ts";
import type { Backfill, Run } from "../../shared/wire/markets.ts";
import { temporaryFolder } from "../support/postgres.ts";
import { allGone, type Process, processesOf, startStackProcess } from "../support/stack-process.ts";
import { steadyPorts } from "../support/steady-ports.ts";

const stateDir = temporaryFolder();
const state = stateAt(stateDir);
const READY = /Vantage runs/;
/** A minute until the next tick, and ten times what a stack needs for one run. */
const STALLS_MS = 180_000;
let ports: number[];

beforeAll(async () => {
  // The stack comes back on them after each kill, so they are chosen before it starts.
  ports = await steadyPorts(3);
});
afterAll(() => {
  for (const { pid } of processesOf(stateDir)) process.kill(pid, "SIGKILL");
  fs.rmSync(stateDir, { recursive: true, force: true });
});

/** The processes a user could lose, by what their command line says. */
const VICTIMS: Record<string, (command: string) => boolean> = {
  "the stack's own process": (command) => command.includes("edge/local/start.ts"),
  workerd: (command) => /^\S*workerd serve/.test(command),
  Postgres: (command) => /bin\/postgres -D/.test(command),
  "a database session": (command) => /^postgres: markets_writer/.test(command),
  "the command that started it": (command) => command.includes("bootstrap.mjs start"),
};

describe("npm start", () => {
  it("survives the kill of any single process during an ingest: nothing lost, doubled or half", async () => {
    for (const [name, matches] of Object.entries(VICTIMS)) {
      const stack = startStackProcess(stateDir, ports);
      await stack.printed(READY);
      // What built the Workers is gone when they run.
      expect(processesOf(stateDir).filter(({ command }) => /esbuild/.test(command))).toEqual([]);
      await cancelOtherBackfills();
      const before = succeeded(await listRuns());
      await waitForRuns((runs) => succeeded(runs) > before || isIdle(runs));
      const victim = victimOf(matches);
      expect([name, victim !== undefined]).toEqual([name, true]);
      process.kill(victim?.pid ?? 0, "SIGKILL");
      // These the stack replaces by itself, and goes on.
      if (["workerd", "Postgres", "a database session"].includes(name)) {
        if (name === "Postgres") await stack.printed(/Postgres runs again/);
        await answers(`http://127.0.0.1:${ports[0]}/libraries`);
        stack.child.kill("SIGTERM");
      }
      await stack.ended;
      await allGone(stateDir);
    }
    const last = startStackProcess(stateDir, ports);
    await last.printed(READY);
    await waitForRuns((runs) => runs.some((run) => run.trigger === "schedule") && isIdle(runs));
    last.child.kill("SIGTERM");
    expect(await last.ended).toBe(0);
    await allGone(stateDir);
    await verifyStore();
    // Ten times what it takes on idle cores.
  }, 1_400_000);

  const consoleUrl = () => `http://127.0.0.1:${ports[1]}`;
  const operatorToken = () => fs.readFileSync(state.operatorToken, "utf8").trim();
  const listRuns = () => operatorAt(consoleUrl(), operatorToken()).runs({ limit: 500 });

  /** One job's month of partitions is enough to be killed in, and takes a quarter of the time. */
  async function cancelOtherBackfills() {
    const headers = { Authorization: `Bearer ${operatorToken()}` };
    let backfills: Backfill[] = [];
    while (!backfills.some(({ job }) => job === "grid_region")) {
      await sleep(100);
      const response = await fetch(`${consoleUrl()}/api/backfills`, { headers });
      backfills = (await response.json()) as Backfill[];
    }
    const others = backfills.filter(({ job }) => job !== "grid_region");
    for (const { backfill_id } of others) {
      await operatorAt(consoleUrl(), operatorToken()).cancelBackfill(backfill_id);
    }
  }

  const succeeded = (runs: { state: string }[]) =>
    runs.filter((run) => run.state === "succeeded").length;
  const isIdle = (runs: { state: string }[]) =>
    runs.length > 0 && !runs.some((run) => /queued|running/.test(run.state));

  const victimOf = (matches: (command: string) => boolean): Process | undefined =>
    [...processesOf(stateDir), ...postgresSessions()].find(({ command }) => matches(command));

  /** Sessions rewrite their command line, so they are found as children of the server. */
  function postgresSessions(): Process[] {
    const server = Number(
      fs.readFileSync(join(state.postgres, "postmaster.pid"), "utf8").split("\n")[0],
    );
    return fs
      .readFileSync(`/proc/${server}/task/${server}/children`, "utf8")
      .trim()
      .split(" ")
      .flatMap((pid) => {
        try {
          const command = fs.readFileSync(`/proc/${pid}/cmdline`, "utf8");
          return [{ pid: Number(pid), command: command.replaceAll("\0", " ").trim() }];
        } catch {
          // It ended since.
          return [];
        }
      });
  }

  /** Polls while runs go on succeeding, however long that takes; fails when none does any more. */
  async function waitForRuns(holds: (runs: Run[]) => boolean) {
    let last = { succeeded: 0, at: performance.now() };
    for (;;) {
      const runs = await listRuns().catch(() => []);
      if (holds(runs)) return;
      if (succeeded(runs) > last.succeeded) {
        last = { succeeded: succeeded(runs), at: performance.now() };
      }
      if (performance.now() - last.at > STALLS_MS) {
        throw new Error(`no run succeeded for ${STALLS_MS / 1_000} s, after ${last.succeeded}`);
      }
      // A list of 500 runs costs the console more than a run of the sandbox does.
      await sleep(500);
    }
  }

  /** Resolves when an address answers 200. */
  async function answers(url: string) {
    const until = performance.now() + STALLS_MS;
    while (!(await fetch(url).catch(() => null))?.ok) {
      if (performance.now() > until) throw new Error(`${url} did not answer`);
      await sleep(50);
    }
  }

  interface VintageRow {
    symbol: string;
    head_seq: number;
    seq: number;
    as_of: number;
    inserted: number;
    revised: number;
    retracted: number;
    live_rows: number;
    inline: Inline;
  }

  async function verifyStore() {
    const { credentials } = prepareState(state);
    const server = await startPostgres({
      dataDir: state.postgres,
      logFile: join(state.logs, "postgres.log"),
      password: credentials.superuser,
    });
    const client = new pg.Client(superuser(server.port, credentials.superuser, "markets"));
    await client.connect();
    try {
      const vintages = await client.query<VintageRow>(`
        SELECT symbol, head_seq::int, seq::int, extract(epoch FROM as_of)::float8 * 1000 AS as_of, inserted,
          revised, retracted, live_rows::int, inline
          FROM vintage JOIN series ON id = series_id
         WHERE library = 'power.demand' ORDER BY symbol, seq`);
      const bySymbol = Map.groupBy(vintages.rows, (row) => row.symbol);
      expect(bySymbol.size).toBeGreaterThanOrEqual(68);
      for (const [symbol, rows] of bySymbol) verifySeries(symbol, rows);
      const runs = await client.query(`
        SELECT state FROM run WHERE trigger = 'backfill' AND job = 'grid_region'`);
      expect(runs.rows).toHaveLength(30);
      expect(runs.rows.filter((run) => run.state !== "succeeded")).toEqual([]);
      const recorded = await client.query(`
        SELECT key, value FROM run, jsonb_each_text(metadata -> 'store_version')
         WHERE NOT EXISTS (SELECT FROM vintage JOIN series ON series.id = series_id
           WHERE library || '.' || symbol = key AND seq = value::int)`);
      expect(recorded.rows).toEqual([]);
      // Each series of the grid's regions has one instrument, of the same name.
      const changed = await client.query(`
        SELECT name, run.id FROM run,
          jsonb_array_elements_text(metadata -> 'changed_instrument_ids') name
         WHERE job = 'grid_region' AND NOT EXISTS (
          SELECT FROM vintage JOIN series ON series.id = series_id
           WHERE library || '.' || symbol = name AND run_id = run.id::text
             AND seq <= (metadata -> 'store_version' ->> name)::int)`);
      expect(changed.rows).toEqual([]);
      const unrecorded = await client.query(`
        SELECT library || '.' || symbol AS name, run_id FROM vintage JOIN series ON series.id = series_id
         WHERE NOT EXISTS (SELECT FROM run WHERE run.id::text = run_id AND state = 'succeeded'
           AND metadata -> 'changed_instrument_ids' <> '[]'
           AND (metadata -> 'store_version' ->> (library || '.' || symbol))::int >= seq)`);
      expect(unrecorded.rows).toEqual([]);
      const unwritten = await client.query(`
        SELECT id FROM run WHERE metadata -> 'changed_instrument_ids' <> '[]'
           AND NOT EXISTS (SELECT FROM vintage WHERE run_id = run.id::text)`);
      expect(unwritten.rows).toEqual([]);
    } finally {
      await client.end();
      await server.stop();
    }
  }

  /** Replays a series: every vintage is whole, follows the one before, and changes something. */
  function verifySeries(symbol: string, rows: VintageRow[]) {
    expect([symbol, rows.map((row) => row.seq)]).toEqual([
      symbol,
      rows.map((_, index) => index + 1),
    ]);
    expect(rows.at(-1)?.head_seq).toBe(rows.length);
    const state = new Map<number, number | undefined>();
    let newest = 0;
    for (const row of rows) {
      expect(row.as_of).toBeGreaterThan(newest);
      newest = row.as_of;
      const writer = { seq: row.seq, asOf: row.as_of, reconstructed: false };
      const { datetime, values, retracted, length } = decodeInline(row.inline, writer);
      expect(length).toBe(row.inserted + row.revised + row.retracted);
      for (const [index, instant] of datetime.entries()) {
        const [known, value] = [state.has(instant), values[0]?.[index]];
        const withdrawn = retracted?.[index] === 1;
        const doubled = withdrawn ? !known : known && Object.is(state.get(instant), value);
        expect([symbol, row.seq, instant, doubled]).toEqual([symbol, row.seq, instant, false]);
        if (withdrawn) state.delete(instant);
        else state.set(instant, value);
      }
      expect(state.size).toBe(row.live_rows);
    }
    // 30 days of hours, less the few that are late or withdrawn.
    expect(state.size).toBeGreaterThan(30 * 24 - 30);
  }

  it("keeps its random credentials in private files and out of every log and line", async () => {
    const files = [join(stateDir, "credentials.json"), state.operatorToken, state.metricsToken];
    expect(files.map((file) => fs.statSync(file).mode & 0o777)).toEqual([0o600, 0o600, 0o600]);
    const { credentials, operatorToken, metricsToken } = prepareState(state);
    const secrets = [...Object.values(credentials), operatorToken, metricsToken];
    expect(secrets.every((secret) => secret.length >= 32)).toBe(true);
    const logs = fs
      .readdirSync(state.logs)
      .map((name) => fs.readFileSync(join(state.logs, name), "utf8"));
    expect(logs.join("").length).toBeGreaterThan(1_000);
    expect(secrets.filter((secret) => logs.some((log) => log.includes(secret)))).toEqual([]);
  });

  it("names a taken port and how to choose another", async () => {
    const holder = net.createServer();
    await new Promise<void>((done) => holder.listen(ports[0], "127.0.0.1", done));
    const stack = startStackProcess(stateDir, ports);
    expect(await stack.ended).toBe(1);
    expect(stack.output()).toContain(`port ${ports[0]} for markets is taken`);
    expect(stack.output()).toContain("--markets-port");
    await new Promise((done) => holder.close(done));
    await allGone(stateDir);
  });

  it("names the stack that holds the folder, and takes over a lock whose owner is dead", async () => {
    fs.writeFileSync(join(stateDir, "lock"), JSON.stringify({ pid: 2 ** 22 - 1, started: "1" }));
    const first = startStackProcess(stateDir, ports);
    await first.printed(READY);
    const second = startStackProcess(stateDir, ports);
    expect(await second.ended).toBe(1);
    expect(second.output()).toMatch(/a stack \(pid \d+\) already runs on .*kill \d+/);
    first.child.kill("SIGTERM");
    expect(await first.ended).toBe(0);
    expect(fs.existsSync(join(stateDir, "lock"))).toBe(false);
    await allGone(stateDir);
  });

  it("goes on with a folder of a version that had no catalog graph", async () => {
    const file = join(stateDir, "credentials.json");
    const { graphReader, graphWriter, ...earlier } = prepareState(state).credentials;
    fs.writeFileSync(file, JSON.stringify(earlier));
    const stack = startStackProcess(stateDir, ports);
    await stack.printed(READY);
    const { credentials } = prepareState(state);
    expect(credentials).toMatchObject(earlier);
    expect([graphReader, graphWriter]).not.toContain(credentials.graphReader);
    expect(fs.statSync(file).mode & 0o777).toBe(0o600);
    const health = await fetch(`http://127.0.0.1:${ports[0]}/healthz`);
    expect(await health.json()).toMatchObject({ status: "ok", graph: "connected" });
    stack.child.kill("SIGTERM");
    expect(await stack.ended).toBe(0);
    await allGone(stateDir);
  });

  it("refuses to feed real data into a sandbox's store, and says what to do", async () => {
    const environment = { EIA_API_KEY: "hunter2" };
    const stack = startStackProcess(stateDir, ports, [], environment);
    expect(await stack.ended).toBe(1);
    expect(stack.output()).toMatch(/holds sandbox data.*--reset.*VANTAGE_STATE/);
    expect(stack.output()).not.toContain("hunter2");
    await allGone(stateDir);
  });

  it("sends no token to whoever took a dead stack's port", async () => {
    const running = { urls: { console: `http://127.0.0.1:${ports[1]}` } };
    fs.writeFileSync(state.running, JSON.stringify(running));
    expect(() => operatorOf(state)).toThrow(/no stack runs on .*npm start/);
    const starting = startStackProcess(stateDir, ports);
    await starting.printed(/Starting database/);
    expect(fs.existsSync(state.running)).toBe(false);
    starting.child.kill("SIGTERM");
    await starting.ended;
    await allGone(stateDir);
  });

  it("takes no folder that holds other things, and --reset deletes none", async () => {
    const project = temporaryFolder();
    fs.mkdirSync(join(project, "logs"));
    const refused = startStackProcess(project, ports);
    expect([await refused.ended, refused.output()]).toEqual([
      1,
      expect.stringContaining("is not empty"),
    ]);
    expect(() => removeState(stateAt(project))).toThrow("nothing was deleted");
    expect(fs.existsSync(join(project, "logs"))).toBe(true);
    fs.rmSync(project, { recursive: true });
  });

  it("starts over with --reset when the credentials are lost, as it advises", async () => {
    fs.rmSync(join(stateDir, "credentials.json"));
    const locked = startStackProcess(stateDir, ports);
    expect(await locked.ended).toBe(1);
    expect(locked.output()).toContain("npm start -- --reset starts over");
    const reset = startStackProcess(stateDir, ports, ["--reset", "--yes"]);
    await reset.printed(READY);
    reset.child.kill("SIGTERM");
    expect(await reset.ended).toBe(0);
    await allGone(stateDir);
  });

  it("deletes data only when told so: --reset asks, or needs --yes", async () => {
    const refused = startStackProcess(stateDir, ports, ["--reset"]);
    expect(await refused.ended).toBe(2);
    expect(refused.output()).toContain("needs a terminal to ask, or --yes");
    expect(fs.existsSync(state.postgres)).toBe(true);
    const before = fs.readFileSync(state.operatorToken, "utf8");
    const reset = startStackProcess(stateDir, ports, ["--reset", "--yes", "--no-sandbox"]);
    await reset.printed(READY);
    expect(reset.output()).toContain("EIA_API_KEY is not set");
    expect(fs.readFileSync(state.operatorToken, "utf8")).not.toBe(before);
    const libraries = await fetch(`http://127.0.0.1:${ports[0]}/libraries`);
    expect(await libraries.json()).toEqual([]);
    reset.child.kill("SIGTERM");
    expect(await reset.ended).toBe(0);
    await allGone(stateDir);
  });

  it("explains itself, and refuses a port that is none", async () => {
    const help = startStackProcess(stateDir, ports, ["--help"]);
    expect(await help.ended).toBe(0);
    for (const flag of ["--markets-port", "--no-sandbox", "--reset", "--host"]) {
      expect(help.output()).toContain(flag);
    }
    const same = startStackProcess(stateDir, [ports[0] ?? 0, ports[0] ?? 0, ports[2] ?? 0]);
    expect([await same.ended, same.output()]).toEqual([
      2,
      expect.stringContaining("three different"),
    ]);
    const bad = startStackProcess(stateDir, ports, ["--markets-port", "x"]);
    expect([await bad.ended, bad.output()]).toEqual([
      2,
      expect.stringContaining('"x" is not a port'),
    ]);
  });
});
