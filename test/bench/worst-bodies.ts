// Processor time of the worst request of each route: JSON bodies of at most 1 MiB made of its
// schema, query strings and headers of 16 KB. Goal: 200 ms, and no more than linear in the body.
// Run: npm run bench -- worst-bodies [--only ROUTES] [--inputs PATTERN] [--top 3] [--seconds N]
// The costliest inputs of a route are sent again, and half as long: the cheapest of three counts.

import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { type Cost, stackMeter } from "./worst-cost.ts";
import { type WorstInput, worstOfSchema } from "./worst-inputs.ts";
import { formsOf, headersOf, queriesOf, type WorstRequest } from "./worst-requests.ts";
import type { Target } from "./worst-target.ts";
import { worstDefinitions, worstParameters, worstRoboflow } from "./worst-workflows.ts";
import { freshAddress, startWorstWorld } from "./worst-world.ts";

const GOAL_MS = 200;
/** A body twice as long may cost so many times as much. */
const GROWTH_MAX = 2.6;
/** Bodies of routes that take longer ones are no longer than this. */
const BYTES_MAX = 2 ** 20;
/** All inputs of a route are sent so much shorter first, to find the costliest. */
const SHORTER = 8;
/** What costs as much so short is not sent any longer: it would take minutes. */
const MINUTES_MS = 1_000;
/** How often an input is sent again. */
const TIMES = 3;
/** What a request costs at cheapest to be sent again. */
const NOTABLE_MS = 60;
const TIMEOUT_MS = 60_000;

const { values: given } = parseArgs({
  options: {
    only: { type: "string", default: "" },
    inputs: { type: "string", default: "" },
    top: { type: "string", default: "3" },
    seconds: { type: "string", default: "3600" },
  },
});
const [only, wanted] = [new RegExp(given.only), new RegExp(given.inputs)];
/** Inputs of a route that are sent again. */
const top = Number(given.top);
const endsAt = performance.now() + Number(given.seconds) * 1_000;

const print = (line: string) => process.stdout.write(`${line}\n`);
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);
const { targets, stop } = await startWorstWorld();
const spent = stackMeter();

/** What a request of a route cost. */
interface Measurement extends Cost {
  route: string;
  input: string;
  bytes: number;
  /** Of the answer; 0 where none came. */
  status: number;
  answerBytes: number;
  /** How many times as much it cost as half of it; null where that was not measured. */
  growth: number | null;
}

const sum = ({ workerd, postgres }: Cost) => workerd + postgres;

/** Requests of the route that is measured, by the status of their answers. */
const statuses = new Map<number, number>();

/** Sends a request; what it cost. */
async function costOf(
  { route, url, credential }: Target,
  request: WorstRequest,
): Promise<Measurement> {
  const headers = { ...(await credential()), ...freshAddress(), ...request.headers };
  const { body = null, name } = request;
  const [method = "GET"] = route.split(" ");
  const address = request.url ?? url;
  const before = spent();
  let [status, answerBytes] = [0, 0];
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const answer = await fetch(address, { method, headers, body, signal, redirect: "manual" });
    status = answer.status;
    answerBytes = (await answer.arrayBuffer()).byteLength;
  } catch (thrown) {
    print(`${route} · ${name}: no answer, ${String(thrown)}`);
  }
  statuses.set(status, (statuses.get(status) ?? 0) + 1);
  const after = spent();
  return {
    route,
    input: name,
    bytes: Buffer.byteLength(body ?? address),
    status,
    answerBytes,
    workerd: after.workerd - before.workerd,
    postgres: after.postgres - before.postgres,
    growth: null,
  };
}

/** The cheapest of some tries: the others have waited for others' garbage. */
async function cheapestOf(target: Target, request: WorstRequest): Promise<Measurement> {
  let cheapest = await costOf(target, request);
  for (let time = 1; time < TIMES && sum(cheapest) < 20 * GOAL_MS; time++) {
    const next = await costOf(target, request);
    if (sum(next) < sum(cheapest)) cheapest = next;
  }
  return cheapest;
}

const asJson = ({ name, make }: WorstInput, bytes: number): WorstRequest => ({
  name,
  headers: { "Content-Type": "application/json" },
  body: make(bytes),
});

/** The bodies of a route: those of its schema, and those that only its own checks know. */
function bodiesOf(target: Target): WorstInput[] {
  const { schema, document, body, route } = target;
  if (!schema) return [];
  const inputs = worstOfSchema(schema, document, { body });
  const wrap = (definition: unknown) => ({ ...(body as object), definition });
  if ("definition" in (body as object) && !route.endsWith("/roboflow")) {
    inputs.push(...worstDefinitions(wrap));
    if (route.endsWith("/check")) inputs.push(...worstParameters(wrap, ["definition"]));
  }
  return route.endsWith("/roboflow") ? [...inputs, ...worstRoboflow()] : inputs;
}

/** The worst of a route's bodies. */
async function worstBodyOf(target: Target): Promise<Measurement[]> {
  const bytes = Math.min(target.bytesMax ?? BYTES_MAX, BYTES_MAX) - 1;
  const first: { input: WorstInput; cost: number }[] = [];
  const inputs = bodiesOf(target).filter(({ name }) => wanted.test(name));
  for (const input of inputs) {
    const cost = sum(await costOf(target, asJson(input, Math.floor(bytes / SHORTER))));
    first.push({ input, cost });
  }
  first.sort((one, other) => other.cost - one.cost);
  const measured: Measurement[] = [];
  for (const [index, { input, cost }] of first.slice(0, top).entries()) {
    if (index > 0 && SHORTER * cost < NOTABLE_MS) break;
    const length = cost < MINUTES_MS ? bytes : Math.floor(bytes / SHORTER);
    const whole = await cheapestOf(target, asJson(input, length));
    if (sum(whole) >= NOTABLE_MS) {
      const half = await cheapestOf(target, asJson(input, length >> 1));
      whole.growth = sum(whole) / Math.max(sum(half), 1);
    }
    measured.push(whole);
  }
  return measured;
}

/** The worst of a route's query strings and headers. */
async function worstOthersOf(target: Target): Promise<Measurement[]> {
  const all: Measurement[] = [];
  const requests = [...queriesOf(target), ...formsOf(target), ...headersOf(target)];
  for (const request of requests.filter(({ name }) => wanted.test(name))) {
    let measured = await costOf(target, request);
    if (sum(measured) >= NOTABLE_MS) measured = await cheapestOf(target, request);
    all.push(measured);
  }
  return all.sort((one, other) => sum(other) - sum(one)).slice(0, 1);
}

const table: Measurement[] = [];
/** The rows of the table, those of a goal that was missed marked. */
function printTable() {
  const isOver = (one: Measurement) => one.workerd >= GOAL_MS || (one.growth ?? 0) > GROWTH_MAX;
  print(
    "\n| | route | input | sent, kB | status, answer, kB | workerd, ms | Postgres, ms | ×, doubled |",
  );
  print("|---|---|---|---|---|---|---|---|");
  for (const one of table.toSorted((a, b) => sum(b) - sum(a))) {
    const kilobytes = (bytes: number) => Math.ceil(bytes / 1_000);
    const cells = [
      isOver(one) ? "over" : "",
      one.route,
      one.input,
      kilobytes(one.bytes),
      `${one.status}, ${kilobytes(one.answerBytes)}`,
      one.workerd.toFixed(0),
      one.postgres.toFixed(0),
      one.growth?.toFixed(1) ?? "",
    ];
    print(`| ${cells.join(" | ")} |`);
  }
  const over = table.filter(isOver).length;
  print(`\n${table.length} rows, ${over} over ${GOAL_MS} ms or growing over ${GROWTH_MAX} times`);
}

const chosen = targets
  .filter(({ route }) => only.test(route))
  .sort((one, other) => Number(other.bytesMax !== null) - Number(one.bytesMax !== null));
for (const target of chosen) {
  if (performance.now() > endsAt) {
    print(`${target.route} and those after it are left out: the time is over`);
    break;
  }
  const started = performance.now();
  statuses.clear();
  const rows = [...(await worstBodyOf(target)), ...(await worstOthersOf(target))];
  table.push(...rows);
  const [worst] = rows.toSorted((one, other) => sum(other) - sum(one));
  const seconds = ((performance.now() - started) / 1_000).toFixed(1);
  const counts = [...statuses].sort().map(([status, count]) => `${count} × ${status}`);
  const cost = `${worst ? sum(worst).toFixed(0) : "–"} ms, ${worst?.input}`;
  print(`${target.route}: ${cost} (${seconds} s; answers ${counts.join(", ")})`);
}
printTable();
await stop();
