// What a month of the deployed services costs, by size of use: quantities of what the code does,
// times the providers' prices. Load is even over the day; GPU nodes, devices and fees of data
// providers are left out. Statements, and the bytes of their answers, were counted between workerd
// and the local Postgres endpoint on 2026-11-27; Neon's own headers may be longer.
// `node_modules/.bin/node edge/local/costs.ts` prints the table of the README.

import { HEARTBEAT_SECONDS } from "../../shared/tasks/node-protocol.ts";
import { INTERVAL_SECONDS } from "../../shared/wire/fleet.ts";

const MILLION = 1_000_000;
const GB = 1_000_000_000;
/** Billing months have 30 days, as in the providers' own examples. */
const DAYS = 30;
const DAY_SECONDS = 86_400;
const MONTH_SECONDS = DAYS * DAY_SECONDS;
const MONTH_MINUTES = MONTH_SECONDS / 60;

/** The day on which the prices were looked up. */
export const PRICES_DATE = "2026-11-27";

/** Dollars for each `per` units of what exceeds the part that the plan includes in a month. */
interface Price {
  dollars: number;
  per: number;
  included: number;
}

const price = (dollars: number, per: number, included = 0): Price => ({ dollars, per, included });

/**
 * Prices of the Workers Paid plan and of Neon's Launch plan, looked up on `PRICES_DATE` in a public
 * index of the documentation's sources. Cloudflare rounds some quantities up to the next million
 * or GB; that is left out. A charge for a plan is a price of one unit.
 */
export const PRICES = {
  // developers.cloudflare.com/workers/platform/pricing: plan, requests, processor time.
  workersPlan: price(5, 1),
  workerRequests: price(0.3, MILLION, 10 * MILLION),
  workerCpuMs: price(0.02, MILLION, 30 * MILLION),
  // developers.cloudflare.com/durable-objects/platform/pricing: calls, messages and alarms;
  // wall-clock time in memory, none while an object may hibernate; rows written to SQLite.
  objectRequests: price(0.15, MILLION, MILLION),
  objectGbSeconds: price(12.5, MILLION, 400_000),
  objectRows: price(1, MILLION, 50 * MILLION),
  // developers.cloudflare.com/queues/platform/pricing: a message is written, read and deleted.
  queueOperations: price(0.4, MILLION, MILLION),
  // developers.cloudflare.com/r2/pricing: class A, class B, storage in GB-months; no egress fee.
  objectWrites: price(4.5, MILLION, MILLION),
  objectReads: price(0.36, MILLION, 10 * MILLION),
  objectGb: price(0.015, 1, 10),
  // developers.cloudflare.com/observability/pricing: in force from 2026-12-01.
  logGb: price(0.25, 1, 50),
  logStoredGb: price(0.1, 1, 12),
  // neon.com/docs/introduction/plans, text of 2026-11-12: hours of a compute unit; storage.
  neonUnitHours: price(0.106, 1),
  neonGb: price(0.35, 1),
  // The same, text of 2026-03-20: change history for restoring to a moment.
  neonHistoryGb: price(0.2, 1),
  // Neon's changelog of 2026-06-05 and its pull request 5344 of 2026-07-22: 500 GB a project;
  // neon.com/docs/introduction/network-transfer: the price of more.
  neonEgressGb: price(0.1, 1, 500),
} satisfies Record<string, Price>;

/** Workers Logs by number of lines, the price until 2026-11-30; the page is that of Workers. */
const LOG_LINES_PRICE = price(0.6, MILLION, 20 * MILLION);

type Meter = keyof typeof PRICES;
type Amounts = Record<Meter, number>;

/** Sizes of a use. */
export interface Use {
  name: string;
  /** Series of the store, each of which changes every hour. */
  series: number;
  /** GET /series a day, each of one day of a series. */
  readsADay: number;
  /** People at work in the labeling pages. */
  labelers: number;
  /** Images a day that a named endpoint answers by a GPU node's direct line. */
  predictionsADay: number;
  /** Edge devices that send heartbeats and logs. */
  devices: number;
  /** GPU nodes that hold a socket and a direct line. */
  nodes: number;
}

const NOTHING = { series: 0, readsADay: 0, labelers: 0, predictionsADay: 0, devices: 0, nodes: 0 };

/** The uses of the table. Two GPU nodes answer the million of predictions. */
export const USES: readonly Use[] = [
  { ...NOTHING, name: "nothing but the crons" },
  { ...NOTHING, name: "5,000 series, 1 M reads a day", series: 5_000, readsADay: MILLION },
  {
    ...NOTHING,
    name: "20 labelers, 1 M predictions a day",
    labelers: 20,
    predictionsADay: MILLION,
    nodes: 2,
  },
  { ...NOTHING, name: "10,000 devices", devices: 10_000 },
  { ...NOTHING, name: "1,000 idle nodes", nodes: 1_000 },
];

/** What a use takes in a month, before it is priced. */
interface Work {
  /** Invocations of Workers by requests, crons and queues. */
  requests: number;
  cpuMs: number;
  /** Calls of Durable Objects, twentieths of messages on their sockets, and alarms. */
  objectRequests: number;
  /** Seconds in which Durable Objects are at work. */
  objectSeconds: number;
  objectRows: number;
  queueMessages: number;
  objectWrites: number;
  objectReads: number;
  objectGb: number;
  /** Lines logged beside those of failed requests. */
  logLines: number;
  statements: number;
  /** Bytes of the database's answers. */
  answerBytes: number;
  databaseGb: number;
  /** Bytes of the database's log of changes. */
  changeBytes: number;
}

const NO_WORK: Work = {
  requests: 0,
  cpuMs: 0,
  objectRequests: 0,
  objectSeconds: 0,
  objectRows: 0,
  queueMessages: 0,
  objectWrites: 0,
  objectReads: 0,
  objectGb: 0,
  logLines: 0,
  statements: 0,
  answerBytes: 0,
  databaseGb: 0,
  changeBytes: 0,
};

/** An event that happens so often in a month, with what each takes. */
const times = (count: number, each: Partial<Work>): Work => {
  const work = { ...NO_WORK };
  for (const [name, amount] of Object.entries(each)) work[name as keyof Work] = amount * count;
  return work;
};

/** Quantities that no part of the code fixes and no measurement gave. */
export const ASSUMPTIONS = {
  /** Processor time of a small request; a whole prediction took 2.0 ms (test/bench/README.md). */
  requestCpuMs: 2,
  /** Processor time of an idle minute of a cron. */
  minuteCpuMs: 50,
  /** Share of requests that fail, of which each is logged. */
  failedShare: 0.01,
  /** A line in Workers Logs with the attributes that the platform adds. */
  logLineBytes: 2_000,
  /** Isolates of the vision service that are in use at once. */
  isolates: 10,
  /** Share of reads whose body the isolate or the edge cache holds. */
  heldShare: 0.5,
  /** Series that a pipeline's run commits. */
  seriesOfRun: 50,
  /** Hourly rows of a series, five years. */
  rowsOfSeries: 43_800,
  /** Rows of a compacted object that a day's revisions rewrite: half of its 65,536. */
  rowsRewritten: 32_768,
  /** Bytes of a row of `vintage` with its inline rows and its part of the indexes. */
  vintageBytes: 600,
  /** Bytes of an image to predict on. */
  imageBytes: 200_000,
  /** Seconds from a node's object sending an image until it has the answer. */
  answerSeconds: 0.1,
  /** Requests of a labeler in an hour, half of them images of frames, and hours in a month. */
  labelerRequests: 1_000,
  labelerHours: 22 * 8,
  /** GB of videos, frames and exports in the bucket where people label. */
  mediaGb: 500,
  /** Lines of its log that a device sends in a day, as one batch. */
  deviceLines: 100,
  /** Bytes of the database's change log for a request of a GPU node. */
  nodeChangeBytes: 500,
  /** Days of Neon's history for restoring. */
  historyDays: 1,
  /** Processor cores of a compute unit of Neon, and the share of them that may be busy. */
  unitCores: 1,
  busyShareMax: 0.5,
} as const;

/** Cron of the console and of the vision service, once a minute each (wrangler.toml). */
function crons(): Work {
  const { minuteCpuMs: cpuMs } = ASSUMPTIONS;
  // Counted in five idle minutes.
  return sum([
    times(MONTH_MINUTES, { requests: 1, cpuMs, statements: 12.4, answerBytes: 7_394 }),
    times(MONTH_MINUTES, { requests: 1, cpuMs, statements: 40, answerBytes: 31_270 }),
  ]);
}

/** Reads and ingest of the markets side. */
function markets({ series, readsADay }: Use): Work {
  const { heldShare, seriesOfRun, rowsOfSeries, rowsRewritten, vintageBytes } = ASSUMPTIONS;
  const commits = series * 24 * DAYS;
  /** Bytes of a row in an object, at most: a year of hours with revisions took 223,340. */
  const rowBytes = 25;
  /** Days for which replaced objects are kept: OBJECT_GRACE_DAYS, edge/http/config.ts. */
  const graceDays = 35;
  /** Days after which vintages leave Postgres: edge/markets/store/archive.ts. */
  const vintageDays = 90;
  return sum([
    // Each read asks the catalog, also for a body that is held (edge/markets/answer.ts): one
    // statement, 2,019 bytes of a day where 24 vintages are inline. Processor time: two cores
    // divided by 1,755 and 323 reads a second, client and Postgres included
    // (test/bench/README.md). A day that is not held is one ranged GET.
    times(readsADay * DAYS * heldShare, {
      requests: 1,
      cpuMs: 1.1,
      statements: 1,
      answerBytes: 2_019,
    }),
    times(readsADay * DAYS * (1 - heldShare), {
      requests: 1,
      cpuMs: 6.2,
      statements: 1,
      answerBytes: 2_019,
      objectReads: 1,
    }),
    // A run is a message and two lines (edge/markets/ingest/execute.ts); 0.7 s of processor time
    // is the wall time of grid_region's 6,480 rows (test/bench/README.md).
    times(commits / seriesOfRun, { requests: 1, cpuMs: 700, queueMessages: 1, logLines: 2 }),
    // A commit of nine days of hours took 2 statements and read one row group; the check reads it
    // back by another statement (edge/markets/ingest/check.ts).
    times(commits, { statements: 3, answerBytes: 9_262 + 2_019, objectReads: 1 }),
    // Compaction once a day: fewer than 64 vintages wait (edge/markets/store/compact.ts).
    times(series * DAYS, {
      statements: 3,
      answerBytes: 16_692,
      objectReads: 1,
      objectWrites: 1,
    }),
    times(series, {
      objectGb: (rowBytes * (rowsOfSeries + rowsRewritten * graceDays)) / GB,
      databaseGb: (24 * vintageDays * vintageBytes) / GB,
      changeBytes: 24 * DAYS * vintageBytes,
    }),
  ]);
}

/** Predictions by a named endpoint, and people who label. */
function people({ labelers, predictionsADay }: Use): Work {
  const { isolates, imageBytes, answerSeconds, labelerRequests } = ASSUMPTIONS;
  const { labelerHours, mediaGb, requestCpuMs } = ASSUMPTIONS;
  /** Messages from a node: its answer, and one that confirms each MiB (gpu-node/node/line.ts). */
  const messages = 1 + imageBytes / 1_048_576;
  const isPredicting = predictionsADay > 0 ? 1 : 0;
  return sum([
    // The node's line is a call; 20 messages count as one request. Processor time of the whole
    // workerd: test/bench/README.md. The statement names the endpoint and its models.
    times(predictionsADay * DAYS, {
      requests: 1,
      cpuMs: 4.6,
      statements: 1,
      answerBytes: 2_399,
      objectRequests: 1 + messages / 20,
      objectSeconds: answerSeconds + 0.002,
    }),
    // Each isolate lists the nodes once a second (NODE_LIST_SECONDS, edge/vision/config.ts).
    times(isPredicting * isolates * MONTH_SECONDS, { statements: 1, answerBytes: 692 }),
    // Each isolate takes of a key's requests and tells the meter what it counted, once a second
    // (edge/vision/serving/endpoints/meter-batch.ts).
    times(isPredicting * isolates * MONTH_SECONDS, { objectRequests: 2 }),
    // The meter's alarm comes every ten seconds (FLUSH_MS, endpoint-meter.ts) and writes two
    // counts and a last answer, each with its index, and the alarm itself.
    times(isPredicting * (MONTH_SECONDS / 10), { objectRequests: 1, objectRows: 7 }),
    // A session is known for a while (edge/vision/auth/scope.ts), so two statements are many.
    times(labelers * labelerHours * labelerRequests, {
      requests: 1,
      cpuMs: requestCpuMs,
      statements: 2,
      answerBytes: 2 * 716,
      objectReads: 0.5,
    }),
    times(labelers > 0 ? 1 : 0, { objectGb: mediaGb }),
  ]);
}

/** Heartbeats and logs of devices. */
function fleet({ devices }: Use): Work {
  const { requestCpuMs: cpuMs, deviceLines } = ASSUMPTIONS;
  /** Rows of a device: a day of beats, 30 days of quarter hours (fleet/devices/beats.ts). */
  const [beats, means] = [DAY_SECONDS / INTERVAL_SECONDS, DAYS * 24 * 4];
  return sum([
    // One statement a beat, while the device reports nothing new of a rollout's model.
    times(devices * (MONTH_SECONDS / INTERVAL_SECONDS), {
      requests: 1,
      cpuMs,
      statements: 1,
      answerBytes: 1_054,
      changeBytes: 212,
    }),
    times(devices * DAYS, { requests: 1, cpuMs, statements: 2, answerBytes: 1_748 }),
    // Bytes of rows with indexes: 20,000 of each, 2026-11-27. A line of a log takes 595
    // (test/bench/README.md) and is kept for DEVICE_LOG_DAYS, 30.
    times(devices, { databaseGb: (200 * beats + 208 * means + 595 * DAYS * deviceLines) / GB }),
  ]);
}

/**
 * Heartbeats and claims of nodes without work. The sockets' pings are answered by the platform
 * while the objects hibernate (`setWebSocketAutoResponse`), which it does not charge according to
 * the page of Durable Objects; as messages they would be 17 M calls of 1,000 nodes, $2.59.
 */
function nodes({ nodes: count }: Use): Work {
  const { requestCpuMs: cpuMs, nodeChangeBytes: changeBytes } = ASSUMPTIONS;
  /** Seconds between two claims while the socket is open: IDLE_MS, gpu-node/node/worker.ts. */
  const idleSeconds = 15;
  // One statement authenticates the token, and another one does the request.
  return sum([
    times(count * (MONTH_SECONDS / HEARTBEAT_SECONDS), {
      requests: 1,
      cpuMs,
      statements: 2,
      answerBytes: 1_017,
      changeBytes,
    }),
    times(count * (MONTH_SECONDS / idleSeconds), {
      requests: 1,
      cpuMs,
      statements: 2,
      answerBytes: 2_442,
      changeBytes,
    }),
  ]);
}

/** Counts that each isolate of the vision service sends every three seconds while it is asked. */
function counts({ labelers, predictionsADay, devices, nodes: count }: Use): Work {
  const isAsked = labelers + predictionsADay + devices + count > 0;
  // SEND_AFTER_MS and one row with its index: edge/vision/base/tally.ts and counters.ts.
  return times(isAsked ? (ASSUMPTIONS.isolates * MONTH_SECONDS) / 3 : 0, {
    objectRequests: 1,
    objectRows: 2,
    objectSeconds: 0.002,
  });
}

function sum(parts: readonly Work[]): Work {
  const total = { ...NO_WORK };
  for (const part of parts) {
    for (const name of Object.keys(total) as (keyof Work)[]) total[name] += part[name];
  }
  return total;
}

/** What a use takes in a month. */
export const workOf = (use: Use): Work =>
  sum([crons(), markets(use), people(use), fleet(use), nodes(use), counts(use)]);

/** Compute units of Neon: 0.25 is the smallest, and the crons never let it sleep. */
function computeUnits({ statements }: Work): number {
  const { unitCores, busyShareMax } = ASSUMPTIONS;
  /** Milliseconds of a core: a read takes 1.05, a beat 0.62 (test/bench/README.md). */
  const statementMs = 1.05;
  const busyCores = (statements * statementMs) / 1_000 / MONTH_SECONDS;
  return Math.max(0.25, busyCores / busyShareMax / unitCores);
}

/** Amounts of a month as they are billed; `logsAll` is the setting LOG_REQUESTS. */
export function amountsOf(work: Work, { logsAll = false } = {}): Amounts {
  const { logLineBytes, historyDays } = ASSUMPTIONS;
  const logGb = (logLinesOf(work, { logsAll }) * logLineBytes) / GB;
  return {
    workersPlan: 1,
    workerRequests: work.requests,
    workerCpuMs: work.cpuMs,
    objectRequests: work.objectRequests,
    // Billed as if each object had 128 MB.
    objectGbSeconds: work.objectSeconds * 0.128,
    objectRows: work.objectRows,
    queueOperations: 3 * work.queueMessages,
    objectWrites: work.objectWrites,
    objectReads: work.objectReads,
    objectGb: work.objectGb,
    logGb,
    // Lines are kept for seven days.
    logStoredGb: (logGb * 7) / DAYS,
    neonUnitHours: computeUnits(work) * 24 * DAYS,
    neonGb: work.databaseGb,
    neonHistoryGb: ((work.changeBytes / DAYS) * historyDays) / GB,
    neonEgressGb: work.answerBytes / GB,
  };
}

/** `wrangler.toml` keeps every line and has the platform add none. */
const logLinesOf = ({ requests, logLines }: Work, { logsAll }: { logsAll: boolean }): number =>
  logLines + requests * (logsAll ? 1 : ASSUMPTIONS.failedShare);

const dollarsOf = ({ dollars, per, included }: Price, amount: number): number =>
  (Math.max(0, amount - included) / per) * dollars;

/** Dollars of a month by meter. */
export function billOf(amounts: Amounts): Amounts {
  const bill = Object.entries(PRICES).map(([meter, one]) => [
    meter,
    dollarsOf(one, amounts[meter as Meter]),
  ]);
  return Object.fromEntries(bill) as Amounts;
}

/** Dollars of a month's logs, every request logged: by lines, and by GB from 2026-12-01. */
export function loggingAll(work: Work): { byLines: number; byGb: number } {
  const { logGb, logStoredGb } = billOf(amountsOf(work, { logsAll: true }));
  const byLines = dollarsOf(LOG_LINES_PRICE, logLinesOf(work, { logsAll: true }));
  return { byLines, byGb: logGb + logStoredGb };
}

const LOGS_HEAD = "Logs of every request, until 2026-11-30 · since";

/** Columns of the table, with the meters that each adds up. */
const COLUMNS: Readonly<Record<string, readonly Meter[]>> = {
  Workers: ["workersPlan", "workerRequests", "workerCpuMs"],
  "Durable Objects": ["objectRequests", "objectGbSeconds", "objectRows"],
  "R2, queues": ["objectWrites", "objectReads", "objectGb", "queueOperations"],
  Logs: ["logGb", "logStoredGb"],
  "Neon compute": ["neonUnitHours"],
  "Neon storage, egress": ["neonGb", "neonHistoryGb", "neonEgressGb"],
};

/** Meters as the table names the largest part of a bill. */
const NAMES: Readonly<Record<Meter, string>> = {
  workersPlan: "the plan of Workers",
  workerRequests: "requests of Workers",
  workerCpuMs: "processor time of Workers",
  objectRequests: "calls of Durable Objects",
  objectGbSeconds: "time of Durable Objects",
  objectRows: "rows of Durable Objects",
  queueOperations: "queues",
  objectWrites: "writes to R2",
  objectReads: "reads of R2",
  objectGb: "storage in R2",
  logGb: "logs",
  logStoredGb: "stored logs",
  neonUnitHours: "Neon's compute",
  neonGb: "Neon's storage",
  neonHistoryGb: "Neon's history",
  neonEgressGb: "Neon's egress",
};

/** The table in Markdown: a row for each use, in dollars a month. */
export function costTable(uses: readonly Use[] = USES): string {
  const heads = ["Use", ...Object.keys(COLUMNS), "**Total**", "Largest part", LOGS_HEAD];
  const rows = uses.map((use) => {
    const work = workOf(use);
    const bill = billOf(amountsOf(work));
    const add = (meters: readonly string[]) =>
      meters.reduce((total, meter) => total + bill[meter as Meter], 0);
    const total = add(Object.keys(bill));
    const [largest] = (Object.keys(bill) as Meter[]).sort((one, other) => bill[other] - bill[one]);
    const meter = largest ?? "workersPlan";
    const share = Math.round((100 * bill[meter]) / total);
    const { byLines, byGb } = loggingAll(work);
    const logs = `${round(byLines)} · ${round(byGb)}`;
    const parts = Object.values(COLUMNS).map((meters) => round(add(meters)));
    const largestPart = `${NAMES[meter]}, ${share} %`;
    return [use.name, ...parts, `**${round(total)}**`, largestPart, logs];
  });
  const ruled = heads.map((_, index) => (index === 0 || index === 8 ? "---" : "---:"));
  return [heads, ruled, ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function round(dollars: number): string {
  if (dollars < 0.05) return "0";
  return dollars.toFixed(dollars < 9.95 ? 1 : 0);
}

if (import.meta.main) process.stdout.write(`${costTable()}\n`);
