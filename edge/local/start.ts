// `npm start`: the embedded stack in the foreground, from one command to useful data.

import * as fs from "node:fs";
import { createInterface } from "node:readline/promises";
import { DAY, iso, isoDay, MINUTE, systemClock } from "../../shared/time.ts";
import { followBaseline, requestBaseline, runHourly } from "./baseline.ts";
import { readArguments, runCommand, UsageError, usageOf } from "./command-line.ts";
import { operatorOf } from "./operator.ts";
import { providerKeys, type Stack, startStack } from "./stack.ts";
import { lockState, removeState, type State, stateAt } from "./state.ts";
import { SERVICES, type ServiceName } from "./workers.ts";

const USAGE = usageOf("start");

const DEFAULT_PORTS: Record<ServiceName, number> = { markets: 8000, console: 3000, vision: 8787 };
const BASELINE_MS_MAX = 60_000;
const STOP_MS_MAX = 20_000;

const say = (line: string) => process.stdout.write(`${line}\n`);
// Where this is written to a file on a full disk, the lines are lost and the stack goes on.
process.stdout.on("error", (thrown: { code?: string }) => {
  if (thrown.code !== "ENOSPC") throw thrown;
});

function readOptions() {
  const port = { type: "string" } as const;
  const { values } = readArguments({
    options: {
      "markets-port": port,
      "console-port": port,
      "vision-port": port,
      host: { type: "string" },
      "no-gpu-node": { type: "boolean", default: false },
      "no-sandbox": { type: "boolean", default: false },
      reset: { type: "boolean", default: false },
      yes: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const ports = SERVICES.map((service) => {
    const name = `VANTAGE_${service.toUpperCase()}_PORT`;
    const text = values[`${service}-port`] ?? (process.env[name] || String(DEFAULT_PORTS[service]));
    if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) {
      throw new UsageError(`--${service}-port: ${JSON.stringify(text)} is not a port`);
    }
    return [service, Number(text)] as const;
  });
  const taken = ports.map(([, one]) => one).filter((one) => one !== 0);
  if (new Set(taken).size < taken.length)
    throw new UsageError("the services need three different ports");
  const host = values.host ?? (process.env.VANTAGE_HOST || "127.0.0.1");
  return { ...values, host, ports: Object.fromEntries(ports) as Record<ServiceName, number> };
}

async function main() {
  const options = readOptions();
  if (options.help) {
    say(USAGE);
    return;
  }
  const state = stateAt();
  if (options.reset && !(await reset(state, options.yes))) return;
  const sandbox = !options["no-sandbox"];
  let stack: Stack | undefined;
  let ending = false;
  const end = async (code: number, reason: string) => {
    if (ending) return;
    ending = true;
    say(`\n${reason}`);
    // A part that does not stop must not keep the terminal.
    setTimeout(() => process.exit(1), STOP_MS_MAX).unref();
    await stack?.stop();
    process.exit(code);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => end(0, "Stopping …"));
  }
  endWithParent(() => void end(1, "The process that started this stack is gone. Stopping …"));
  let baseline = false;
  let shows = false;
  const started = systemClock();
  stack = await startStack({
    state,
    sandbox,
    gpuNode: !options["no-gpu-node"],
    host: options.host,
    ports: options.ports,
    environment: process.env,
    onStep: (step) => say(`Starting ${step} …`),
    onTold: (sentence) => {
      if (!ending) say(`${sentence.slice(0, 1).toUpperCase()}${sentence.slice(1)}.`);
    },
    onServicesRestarted: () => {
      if (ending) return;
      say("The services' process ended and was restarted; its runs go on.");
      if (baseline) requestBaseline(operatorOf(state)).catch(() => {});
    },
  });
  say(table(stack, state, options, systemClock() - started));
  baseline = stack.feed !== "none";
  if (baseline) {
    // The first scheduled run waits for the baseline, but not for a provider that hangs.
    setTimeout(stack.startTicking, BASELINE_MS_MAX).unref();
    const filled = await followBaseline(operatorOf(state), say).catch((thrown: unknown) => {
      if (!ending) say(`The first backfill could not be followed: ${(thrown as Error).message}`);
      return false;
    });
    if (filled) say(`As it is known now: add &as_of=${iso(systemClock())} to the request.`);
    baseline = false;
    shows = filled && stack.feed === "sandbox";
  }
  if (ending) return;
  stack.startTicking();
  if (shows) await showRevisions(stack, state);
}

/** Fetches again once the sandbox has revised its newest hours, and says where that is seen. */
async function showRevisions(stack: Stack, state: State) {
  // Its preliminary values change with the minute.
  const untilRevised = MINUTE - (systemClock() % MINUTE) + 1_000;
  await new Promise((done) => setTimeout(done, untilRevised));
  try {
    if ((await runHourly(operatorOf(state))) === 0) return;
  } catch {
    // Nobody waits for it: the next tick does the same.
    return;
  }
  const console = stack.urls.console.replace("127.0.0.1", "localhost");
  const page = `${console}/series?library=power.demand&symbol=erco`;
  say(`The newest hours have been revised since; both states are known: ${page}`);
}

/**
 * The stack ends when the shell or npm that started it was killed, so that no orphan holds the
 * ports.
 */
function endWithParent(end: () => void) {
  const parent = process.ppid;
  setInterval(() => process.ppid !== parent && end(), 1_000).unref();
}

async function reset(state: State, yes: boolean): Promise<boolean> {
  if (!fs.existsSync(state.dir)) return true;
  if (!yes) {
    if (!process.stdin.isTTY)
      throw new UsageError("--reset deletes data and needs a terminal to ask, or --yes");
    const prompt = createInterface({ input: process.stdin, output: process.stdout });
    const answer = await prompt.question(`Delete everything under ${state.dir}? [y/N] `);
    prompt.close();
    if (!/^y(es)?$/i.test(answer.trim())) {
      say("Nothing was deleted.");
      return false;
    }
  }
  const release = lockState(state);
  try {
    removeState(state);
  } finally {
    release();
  }
  say(`Deleted ${state.dir}.`);
  return true;
}

const OPEN = "ready, open to all who reach it: SERVICE_READ_API_KEY is not set";

const NO_CURVES =
  "  curves    commodities' are empty: their prices are the EIA's, and EIA_API_KEY is not set";

function table(stack: Stack, state: State, options: { host: string }, ms: number): string {
  const host = options.host === "127.0.0.1" ? "localhost" : options.host;
  const at = (service: ServiceName) => stack.urls[service].replace("127.0.0.1", host);
  const keys = providerKeys(process.env);
  const upstream = {
    real: `real providers (${keys.join(", ")} set); jobs of the others fail`,
    sandbox:
      "SANDBOX: generated data, not a market's. For the real EIA: EIA_API_KEY, new state folder",
    none: "none: EIA_API_KEY is not set, EIA runs will fail; so with the other keys",
  }[stack.feed];
  const rows = [
    ["read API", at("markets"), process.env.SERVICE_READ_API_KEY ? "ready" : OPEN],
    ["console", at("console"), "ready, cron every minute"],
    ["vision", at("vision"), stack.gpuNode ? "ready, with a GPU node on this machine" : "ready"],
  ];
  const since = isoDay(systemClock() - DAY);
  return [
    "",
    `Vantage runs (started in ${(ms / 1_000).toFixed(1)} s). Ctrl-C stops it.`,
    "",
    ...rows.map(
      ([name = "", url = "", status]) => `  ${name.padEnd(9)} ${url.padEnd(24)} ${status}`,
    ),
    `  upstream  ${upstream}`,
    ...(stack.feed === "sandbox" || process.env.EIA_API_KEY ? [] : [NO_CURVES]),
    `  R2 (S3)   ${stack.s3Url}`,
    `  data      ${state.dir} (logs/; operator-token, and metrics-token for /metrics)`,
    "",
    `  curl '${at("markets")}/series?library=power.demand&symbol=erco&start=${since}'`,
    `  The Studio: ${at("vision")}/studio`,
    `  API pages: ${at("markets")}/docs  ${at("vision")}/docs`,
    "  The first to register with the vision service is its administrator. To see it work: npm run demo",
    "",
  ].join("\n");
}

await runCommand("npm start", main);
