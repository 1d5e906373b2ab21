// `npm run job -- …`: the orchestrator's command line, against the stack that runs on this machine.

import type { parseArgs } from "node:util";
import { systemClock } from "../../shared/time.ts";
import { type Backfill, type Run, RunState } from "../../shared/wire/markets.ts";
import type { RefusedRow } from "../../shared/wire/refusals.ts";
import { PROVIDER_IDS } from "../markets/ingest/providers.ts";
import { backfillView } from "./backfill-view.ts";
import { meant, paint, readArguments, runCommand, UsageError, usageOf } from "./command-line.ts";
import { eventLine, progressOf, refusalLine, runLine, table } from "./lines.ts";
import { followBackfill, followRun, type Operator, OperatorError, operatorOf } from "./operator.ts";
import { linesOf, namedProviders, type ProbeResult, probe, realUpstreams } from "./probe.ts";
import { stateAt } from "./state.ts";

const USAGE = usageOf("job");

const OPTIONS = {
  partition: { type: "string" },
  "partition-range": { type: "string" },
  "retry-failed": { type: "string" },
  job: { type: "string" },
  state: { type: "string" },
  backfill: { type: "string" },
  limit: { type: "string" },
  "no-wait": { type: "boolean", default: false },
  json: { type: "boolean", default: false },
  help: { type: "boolean", default: false, short: "h" },
} as const;

type Values = ReturnType<typeof parseArgs<{ options: typeof OPTIONS }>>["values"];

interface CommandArguments {
  /** Options it reads. */
  options: readonly (keyof typeof OPTIONS)[];
  /** Words it takes after its name. */
  wordsMax: number;
}

/** A command of the stack that runs on this machine. */
interface StackCommand extends CommandArguments {
  run: (operator: Operator, words: readonly string[], values: Values) => Promise<void>;
}

/** A command that needs no stack. */
interface PlainCommand extends CommandArguments {
  runPlain: (words: readonly string[]) => Promise<void>;
}

type Command = StackCommand | PlainCommand;

const COMMANDS: Readonly<Record<string, Command>> = {
  list: { options: [], wordsMax: 0, run: list },
  launch: { options: ["partition", "no-wait"], wordsMax: 1, run: launch },
  backfill: {
    options: ["partition-range", "retry-failed", "no-wait"],
    wordsMax: 1,
    run: backfill,
  },
  partitions: { options: ["partition-range"], wordsMax: 1, run: partitions },
  runs: { options: ["job", "state", "partition", "backfill", "limit"], wordsMax: 0, run: runs },
  events: { options: [], wordsMax: 1, run: events },
  cancel: { options: [], wordsMax: 1, run: cancel },
  refusals: { options: ["job", "limit"], wordsMax: 1, run: refusals },
  accept: { options: ["no-wait"], wordsMax: Infinity, run: accept },
  "vintage-flags": { options: [], wordsMax: 1, run: vintageFlags },
  probe: { options: [], wordsMax: 1, runPlain: probeProviders },
  schedules: { options: [], wordsMax: 2, run: schedules },
  ticks: { options: ["limit"], wordsMax: 1, run: ticks },
};

let json = false;

/** A line for people; a program that asked for JSON gets none. */
const say = (line: string) => json || process.stdout.write(`${colored(line)}\n`);

/** What a command found or did, as the program that asked for JSON gets it; lines for people. */
function show(result: unknown, lines: readonly string[] = []) {
  if (json) process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  else lines.forEach(say);
}

/** States in the colours that the console gives them. */
const colored = (line: string) =>
  line
    .replace(/\b(failed|late|partial)\b|CHECK FAILED|\bOFF\b|\bERROR\b/g, (word) =>
      paint("red", word),
    )
    .replace(/\b(succeeded|materialized)\b/g, (word) => paint("green", word))
    .replace(/\b(running|queued|waiting)\b/g, (word) => paint("cyan", word));

async function main() {
  const { values, positionals } = readArguments({ allowPositionals: true, options: OPTIONS });
  const [name = "", ...words] = positionals;
  if (values.help) {
    say(USAGE);
    return;
  }
  const command = COMMANDS[name];
  if (!command) {
    const known = Object.keys(COMMANDS);
    throw new UsageError(
      name ? `there is no command ${name}${meant(name, known)}` : "no command was given",
    );
  }
  json = values.json;
  const given = Object.entries(values).filter(([, value]) => value !== false);
  const stray = given.find(
    ([option]) => option !== "json" && !command.options.includes(option as keyof typeof OPTIONS),
  );
  if (stray) throw new UsageError(`${name} takes no --${stray[0]}`);
  if (words.length > command.wordsMax)
    throw new UsageError(`${name} takes no ${JSON.stringify(words[command.wordsMax])}`);
  if ("runPlain" in command) return command.runPlain(words);
  await command.run(operatorOf(stateAt()), words, values);
}

function required(word: string | undefined, what: string): string {
  if (word) return word;
  throw new UsageError(`name ${what}`);
}

function limitOf(text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  if (/^[1-9]\d*$/.test(text)) return Number(text);
  throw new UsageError(`--limit ${JSON.stringify(text)} is not a number above 0`);
}

function rangeOf(text: string): { first: string; last: string } {
  const [, first, last] = /^(\d{4}-\d\d-\d\d):(\d{4}-\d\d-\d\d)$/.exec(text) ?? [];
  if (first && last) return { first, last };
  const example = "2026-01-01:2026-01-31";
  throw new UsageError(
    `--partition-range ${JSON.stringify(text)} is not <first>:<last>, such as ${example}`,
  );
}

async function probeProviders([word]: readonly string[]) {
  const providers = namedProviders(word);
  if (!providers)
    throw new UsageError(`no provider is named ${word}${meant(word ?? "", PROVIDER_IDS)}`);
  const results: ProbeResult[] = [];
  for await (const result of probe(realUpstreams(process.env), { providers, now: systemClock() })) {
    results.push(result);
    linesOf(result).forEach(say);
  }
  show(results);
  const isWrong = ({ failure, differences }: ProbeResult) =>
    failure !== null || differences.some(({ severity }) => severity === "error");
  if (results.some(isWrong)) process.exitCode = 1;
}

async function list(operator: Operator) {
  const jobs = await operator.jobs();
  if (json) return show(jobs);
  for (const one of jobs) {
    const { job, libraries, partition_unit, first_partition, latest_partition } = one;
    say(`${job}  → ${libraries.join(" ")}`);
    say(`  ${one.provider}; a ${partition_unit}, ${first_partition} to ${latest_partition}`);
    if (one.schedules.length === 0) say("  no schedule: run it by hand");
    for (const { schedule, cron, time_zone, enabled, next_tick, last_tick } of one.schedules) {
      say(`  ${schedule}  ${cron} ${time_zone}${enabled ? "" : "  OFF"}`);
      const last = last_tick?.scheduled_at ?? "never";
      say(`    next tick ${next_tick ?? "never"}, last tick ${last}`);
    }
  }
}

async function launch(operator: Operator, [job]: readonly string[], values: Values) {
  if (!job && values.partition) throw new UsageError("--partition needs a job");
  const jobs = job ? [job] : (await operator.jobs()).map((one) => one.job);
  const launched: string[] = [];
  for (const name of jobs) {
    const runId = await operator.launch(name, values.partition);
    say(`launched ${name}: run ${runId}`);
    launched.push(runId);
  }
  show(await follow(operator, launched, values));
}

/** Runs once they ended, or as they are with `--no-wait`; one that failed fails the command. */
async function follow(operator: Operator, runIds: readonly string[], values: Values) {
  if (values["no-wait"]) return Promise.all(runIds.map((runId) => operator.run(runId)));
  const ended: Run[] = [];
  for (const runId of runIds) {
    const run = await followRun(operator, runId, ({ job, error_detail }) =>
      process.stderr.write(`${job} waits: ${error_detail} (Ctrl-C leaves it to itself)\n`),
    );
    say(runLine(run));
    ended.push(run);
    if (run.state !== "succeeded") process.exitCode = 1;
  }
  return ended;
}

async function backfill(operator: Operator, [job]: readonly string[], values: Values) {
  const { "partition-range": range, "retry-failed": retried } = values;
  let started: Backfill;
  if (retried !== undefined) {
    if (job || range) throw new UsageError("--retry-failed stands alone");
    started = await operator.retryBackfill(retried);
  } else {
    const named = required(job, "the job to backfill");
    const bounds = rangeOf(required(range, "--partition-range <first>:<last>"));
    started = await operator.startBackfill({ job: named, ...bounds });
  }
  const { backfill_id } = started;
  const { total } = progressOf(started);
  say(`backfill ${backfill_id}: ${started.job} ${started.first} to ${started.last}, ${total} runs`);
  if (values["no-wait"]) return show(started);
  process.on("SIGINT", () => {
    say(`\nThe backfill goes on. To end it: npm run job -- cancel ${backfill_id}`);
    process.exit(130);
  });
  const ended = await followBackfill(
    operator,
    started,
    backfillView(operator, {
      isTerminal: process.stdout.isTTY,
      write: (text) => json || process.stdout.write(text),
    }),
  );
  sayBackfill(ended);
  show(ended);
  if (progressOf(ended).unsound.length === 0) return;
  process.exitCode = 1;
  say(`Again: npm run job -- backfill --retry-failed ${backfill_id}`);
}

function sayBackfill({ job, runs: counts }: Backfill) {
  const parts = Object.entries(counts).filter(([, count]) => count > 0);
  say(`${job}: ${parts.map(([state, count]) => `${count} ${state}`).join(", ")}`);
}

async function partitions(operator: Operator, [job]: readonly string[], values: Values) {
  const named = required(job, "the job whose partitions to list");
  const range = values["partition-range"] ? rangeOf(values["partition-range"]) : {};
  const found = await operator.partitions(named, range);
  const rows = found.map((one) => {
    const revised = one.revised_rows > 0 ? `${one.revised_rows} rows revised` : "";
    return [one.partition, one.state, one.error_code ?? revised, one.run_id ?? ""];
  });
  show(found, table(rows));
}

async function runs(operator: Operator, _words: readonly string[], values: Values) {
  const { job, partition, backfill: backfillId } = values;
  const state = RunState.optional().safeParse(values.state);
  if (!state.success)
    throw new UsageError(`--state ${values.state} is none of ${RunState.options.join(", ")}`);
  const filter = { job, partition, backfill_id: backfillId, state: state.data };
  const found = await operator.runs({ ...filter, limit: limitOf(values.limit, 20) });
  show(found, found.map(runLine));
}

async function events(operator: Operator, [runId]: readonly string[]) {
  const journal = await operator.events(required(runId, "the run whose journal to show"));
  show(journal, journal.map(eventLine));
}

async function cancel(operator: Operator, [word]: readonly string[]) {
  const id = required(word, "the run or backfill to cancel");
  const run = await operator.cancelRun(id).catch((thrown: unknown) => {
    if (thrown instanceof OperatorError && thrown.code === "unknown_run") return null;
    throw thrown;
  });
  if (!run) {
    const ended = await operator.cancelBackfill(id).catch((thrown: unknown) => {
      const isUnknown = thrown instanceof OperatorError && thrown.code === "unknown_backfill";
      throw isUnknown ? new Error(`no run and no backfill has the id ${id}`) : thrown;
    });
    show(ended);
    return sayBackfill(ended);
  }
  show(run, [runLine(run)]);
  if (run.state === "canceled") return;
  process.exitCode = 1;
  say("It had ended before.");
}

async function refusals(operator: Operator, [refusalId]: readonly string[], values: Values) {
  if (refusalId) {
    const found = await operator.refusal(refusalId);
    const valuesOf = (one: RefusedRow["before"]) => (one ? one.map(String).join(" ") : "–");
    const rows = found.changes.map(({ Datetime, instrument_id, before, after }) => [
      ...[Datetime, instrument_id, valuesOf(before), "→"],
      valuesOf(after),
    ]);
    return show(found, [refusalLine(found), ...table(rows)]);
  }
  const filter = { job: values.job, state: "open" as const, limit: limitOf(values.limit, 100) };
  const found = await operator.refusals(filter);
  show(found, found.length > 0 ? found.map(refusalLine) : ["Nothing is refused."]);
}

async function accept(operator: Operator, words: readonly string[], values: Values) {
  required(words[0], "the refusals to accept, by their ids");
  const { refusals: accepted, run_ids } = await operator.acceptRefusals(words);
  accepted.map(refusalLine).forEach(say);
  if (values["no-wait"]) for (const runId of run_ids) say(`launched run ${runId}`);
  show({ accepted, runs: await follow(operator, run_ids, values) });
}

async function schedules(operator: Operator, [verb, name]: readonly string[]) {
  const known = (await operator.jobs()).flatMap((job) => job.schedules);
  if (verb !== undefined) {
    if (verb !== "on" && verb !== "off")
      throw new UsageError(`schedules takes on or off, not ${JSON.stringify(verb)}`);
    const wanted = required(name, "the schedule, or all");
    const names = wanted === "all" ? known.map((one) => one.schedule) : [wanted];
    for (const one of names) {
      await operator.switchSchedule(one, verb === "on");
      say(`${one}  ${verb}`);
    }
    return show(names.map((schedule) => ({ schedule, enabled: verb === "on" })));
  }
  const rows = known.map((one) => [
    ...[one.enabled ? "on" : "OFF", one.schedule, one.cron, one.time_zone, one.aim],
    `next ${one.next_tick ?? "never"}`,
  ]);
  show(known, table(rows));
}

async function vintageFlags(operator: Operator, [job]: readonly string[]) {
  const jobs = job ? [job] : (await operator.jobs()).map((one) => one.job);
  const found = [];
  for (const name of jobs) found.push(...(await operator.vintageFlags(name)));
  const rows = found.map((one) => [
    ...[one.job, one.library, one.symbol, one.first, one.last],
    `${one.rows} rows flagged true that were learned too late`,
  ]);
  show(found, found.length > 0 ? table(rows) : ["Every stored flag agrees with the rule."]);
}

async function ticks(operator: Operator, [schedule]: readonly string[], values: Values) {
  const filter = schedule ? { schedule } : {};
  const found = await operator.ticks({ ...filter, limit: limitOf(values.limit, 20) });
  const rows = found.map((tick) => [
    ...[tick.scheduled_at, tick.schedule, tick.partition ?? "", tick.state ?? "skipped"],
    tick.skip_reason ?? tick.run_id ?? "",
  ]);
  show(found, table(rows));
}

await runCommand("npm run job", main);
