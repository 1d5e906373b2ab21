// The group `markets`, by hand because of its size: the same rows in ArcticDB behind FastAPI, whose
// answers must be ours by hash, and how long both take in one run.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { parquetReadObjects } from "hyparquet";
import { freePorts } from "../../edge/local/ports.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import type { Group, GroupContext } from "./group.ts";
import type { Outcome } from "./known.ts";
import { type Services, startServices } from "./services.ts";

const ROWS = Number(process.env.ROWS ?? 500_000);
const COMMIT_ROWS = 100_000;
const REVISIONS = 20;
const QUARTER_MS = 900_000;
const FROM = Date.UTC(2012, 0, 1);
/** The commit of which both are asked: half of the revisions are known then. */
const VERSION = Math.ceil(ROWS / COMMIT_ROWS) + REVISIONS / 2 - 1;
/** Each question is asked so often before it is timed, and then: compilers settle within them. */
const REPEATS = { "whole history": { warmUp: 2, timed: 9 }, "one day": { warmUp: 40, timed: 101 } };
const DAY_ROWS = 96;
const READY_MS_MAX = 300_000;
const POLL_MS = 200;

const price = (index: number, revision: number) =>
  ((index * 7_919 + revision * 101) % 900_001) / 100;

/** The whole history, then a revision of every fifth row, in parts; returns when each was known. */
async function commitAll({ writer }: Services): Promise<number[]> {
  const asOfs: number[] = [];
  const put = async (first: number, count: number, revision: number) => {
    const vintage = await commit(writer, {
      library: "power.lmp",
      symbol: "hub",
      valueColumns: ["value"],
      rows: Array.from({ length: count }, (_, offset) => ({
        datetime: FROM + (first + offset) * QUARTER_MS,
        instrumentId: "power.lmp.hub",
        values: [price(first + offset, (first + offset) % 5 === 0 ? revision : 0)],
      })),
      covered: { from: FROM + first * QUARTER_MS, to: FROM + (first + count) * QUARTER_MS },
      reconstructed: false,
      sandbox: true,
      runId: "peers",
      partition: `${first}`,
      sourceUrl: "https://api.example.com/",
    });
    if (!vintage) throw new Error(`revision ${revision} changed nothing`);
    asOfs.push(vintage.asOf);
  };
  for (let first = 0; first < ROWS; first += COMMIT_ROWS) {
    await put(first, Math.min(COMMIT_ROWS, ROWS - first), 0);
  }
  const count = Math.floor(ROWS / REVISIONS);
  for (let revision = 1; revision <= REVISIONS; revision++) {
    await put(count * (revision - 1), count, revision);
  }
  await compact(writer, { library: "power.lmp", symbol: "hub" });
  return asOfs;
}

const agent = new http.Agent({ keepAlive: true });

const get = (url: string, headers: Record<string, string> = {}) =>
  new Promise<Buffer>((resolve, reject) => {
    const request = http.get(url, { agent, headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        const body = Buffer.concat(chunks);
        if (response.statusCode === 200) resolve(body);
        else reject(new Error(`${response.statusCode} ${body.toString().slice(0, 200)}`));
      });
    });
    request.on("error", reject);
  });

/** Starts the server and waits until it has filled its store; `stop` ends it. */
async function startArctic({ python }: GroupContext, services: Services, asOfs: number[]) {
  const [port] = await freePorts(1);
  const spec = join(services.folder, "arcticdb.json");
  const folder = join(services.folder, "arcticdb");
  const given = { rows: ROWS, stepMs: QUARTER_MS, fromMs: FROM, asOfs, version: VERSION };
  const sizes = { commitRows: COMMIT_ROWS, revisions: REVISIONS };
  writeFileSync(spec, JSON.stringify(Object.assign({ port, folder }, given, sizes)));
  const script = join(import.meta.dirname, "markets/arcticdb_server.py");
  const child = spawn(python, [script, spec], { stdio: ["ignore", "ignore", "pipe"] });
  let words = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    words = (words + text).slice(-4_000);
  });
  const stop = () => void child.kill("SIGKILL");
  process.once("exit", stop);
  const url = `http://127.0.0.1:${port}/series`;
  for (const deadline = performance.now() + READY_MS_MAX; ; ) {
    const ready = await get(`${url}?start=0&end=1`).catch(() => null);
    if (ready) return { url, stop };
    if (child.exitCode !== null || performance.now() > deadline) {
      stop();
      throw new Error(`ArcticDB does not answer: ${words}`);
    }
    await new Promise((next) => setTimeout(next, POLL_MS));
  }
}

const FORMATS = ["json", "parquet"] as const;
type Format = (typeof FORMATS)[number];

async function rowsOf(body: Buffer, format: Format): Promise<Record<string, unknown>[]> {
  if (format === "json") return JSON.parse(body.toString()) as Record<string, unknown>[];
  const file = body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength);
  return parquetReadObjects({ file: file as ArrayBuffer });
}

/** Rows and a hash of them as both sides mean them, whatever the bytes of their answer are. */
async function fingerprint(body: Buffer, format: Format): Promise<string> {
  const hash = createHash("sha256");
  const rows = await rowsOf(body, format);
  const instant = (value: unknown) => (value instanceof Date ? value.toISOString() : value);
  for (const row of rows) {
    const known = instant(row.as_of);
    const fields = [instant(row.Datetime), row.instrument_id, Number(row.value), known];
    hash.update(`${fields.join("|")}|${row.vintage_reconstructed}\n`);
  }
  return `${rows.length} rows, ${hash.digest("hex").slice(0, 16)}`;
}

type Ask = () => Promise<Buffer>;

/** The middle one of a question's times in milliseconds, both sides asked in turn. */
async function timed(
  { warmUp, timed: repeats }: { warmUp: number; timed: number },
  ours: Ask,
  theirs: Ask,
) {
  const times: [number[], number[]] = [[], []];
  for (let repeat = -warmUp; repeat < repeats; repeat++) {
    for (const [side, ask] of [ours, theirs].entries()) {
      const started = performance.now();
      await ask();
      if (repeat >= 0) times[side]?.push(performance.now() - started);
    }
  }
  const middle = (all: number[]) =>
    all.toSorted((left, right) => left - right)[repeats >> 1] ?? Number.NaN;
  return { ours: middle(times[0]), theirs: middle(times[1]) };
}

export const markets: Group = {
  async run(context) {
    const services = await startServices({ SERVICE_SERIES_MAX_ROWS: "1000000" });
    try {
      const asOfs = await commitAll(services);
      const arctic = await startArctic(context, services, asOfs);
      try {
        return await compare(services, arctic.url, asOfs[VERSION] ?? 0);
      } finally {
        arctic.stop();
      }
    } finally {
      agent.destroy();
      await services.stop();
    }
  },
};

async function compare(services: Services, url: string, asOf: number): Promise<Outcome[]> {
  const iso = (instant: number) => new Date(instant).toISOString();
  const path = `/series?library=power.lmp&symbol=hub&as_of=${iso(asOf)}`;
  const ours = (query: string) => () =>
    get(services.urls.markets + path + query, { "X-API-Key": services.apiKey });
  const theirs = (query: string) => () => get(url + query);
  const first = FROM + Math.floor(ROWS / 2) * QUARTER_MS;
  const last = first + (DAY_ROWS - 1) * QUARTER_MS;
  // No two requests of a day name the same instants, so that none is answered from a cache.
  let days = 0;
  const day = () => `&start=${iso(first - ++days)}&end=${iso(last)}`;
  const questions: Question[] = FORMATS.flatMap((format) => {
    const [our, their] = [`&format=${format}`, `format=${format}`];
    const whole = { ours: ours(our), theirs: theirs(`?${their}`) };
    const bounds = `?start=${first}&end=${last}&${their}`;
    const oneDay = { ours: () => ours(our + day())(), theirs: theirs(bounds) };
    return [
      { name: "whole history", format, ...whole },
      { name: "one day", format, ...oneDay },
    ];
  });
  const outcomes: Outcome[] = [];
  for (const question of questions) outcomes.push(...(await asked(question)));
  return outcomes;
}

interface Question {
  name: keyof typeof REPEATS;
  format: Format;
  ours: Ask;
  theirs: Ask;
}

/** Whether both sides answer the same, and how long each takes. */
async function asked({ name, format, ours, theirs }: Question): Promise<Outcome[]> {
  const [own, other] = [
    await fingerprint(await ours(), format),
    await fingerprint(await theirs(), format),
  ];
  // Cases of JSON are named without it.
  const one = `markets/arcticdb/${name}${format === "json" ? "" : `/${format}`}`;
  const rows: Outcome =
    own === other
      ? { case: `${one}/rows`, outcome: "passed", detail: own }
      : { case: `${one}/rows`, outcome: "failed", detail: `${own}; ArcticDB has ${other}` };
  const times = await timed(REPEATS[name], ours, theirs);
  const ratio = (times.theirs / times.ours).toFixed(2);
  const figures = `/series ${times.ours.toFixed(1)} ms, ArcticDB ${times.theirs.toFixed(1)} ms`;
  return [rows, { case: `${one}/time`, outcome: "passed", detail: `${figures}: ${ratio}×` }];
}
