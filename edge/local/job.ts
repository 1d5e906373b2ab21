// `npm run job -- …`: the orchestrator's command line, against the stack that runs on this machine.

import { parseArgs } from "node:util";
import type { Run } from "../../shared/markets.ts";
import { followBackfill, followRun, type Operator, operatorOf } from "./operator.ts";
import { stateAt } from "./state.ts";

const USAGE = `npm run job -- <command>

  list                                        jobs with their schedules
  launch [job_name] [--partition KEY]         run the newest partition now (all jobs when none is named)
  backfill <job_name> --partition-range A:B   rebuild partitions A to B, e.g. 2026-01-01:2026-01-31
  runs [--limit N]                            newest runs

launch and backfill wait for the end and exit with 1 when a run failed; --no-wait returns at once.
`;

const say = (line: string) => process.stdout.write(`${line}\n`);

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      partition: { type: "string" },
      "partition-range": { type: "string" },
      limit: { type: "string", default: "20" },
      "no-wait": { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const [command, job] = positionals;
  const commands: Record<string, (operator: Operator) => Promise<void>> = {
    list,
    launch: (operator) => launch(operator, job, values.partition, !values["no-wait"]),
    backfill: (operator) => backfill(operator, job, values["partition-range"], !values["no-wait"]),
    runs: async (operator) =>
      (await operator.runs({ limit: Number(values.limit) })).forEach(sayRun),
  };
  const chosen = commands[command ?? ""];
  if (values.help || !chosen) {
    say(USAGE);
    process.exitCode = values.help ? 0 : 2;
    return;
  }
  await chosen(operatorOf(stateAt()));
}

async function list(operator: Operator) {
  for (const { job, libraries, schedules } of await operator.jobs()) {
    say(`${job}  → ${libraries.join(" ")}`);
    for (const { schedule, cron, time_zone, enabled, next_tick, last_tick } of schedules) {
      say(`  ${schedule}  ${cron} ${time_zone}${enabled ? "" : "  OFF"}`);
      const last = last_tick?.scheduled_at ?? "never";
      say(`    next tick ${next_tick ?? "never"}, last tick ${last}`);
    }
  }
}

async function launch(
  operator: Operator,
  job: string | undefined,
  partition: string | undefined,
  wait: boolean,
) {
  const jobs = job ? [job] : (await operator.jobs()).map((one) => one.job);
  for (const name of jobs) {
    const runId = await operator.launch(name, partition);
    say(`launched ${name}: run ${runId}`);
    if (!wait) continue;
    const run = await followRun(operator, runId);
    sayRun(run);
    if (run.state === "failed") process.exitCode = 1;
  }
}

async function backfill(
  operator: Operator,
  job: string | undefined,
  range: string | undefined,
  wait: boolean,
) {
  const [, first, last] = /^([^:]+):([^:]+)$/.exec(range ?? "") ?? [];
  if (!job || !first || !last)
    throw new Error("usage: backfill <job_name> --partition-range <first>:<last>");
  const started = await operator.startBackfill({ job, first, last });
  say(`backfill ${started.backfill_id}`);
  if (!wait) return;
  const ended = await followBackfill(operator, started, (done, total, failed) => {
    say(`${done}/${total} partitions${failed ? `, ${failed} failed` : ""}`);
  });
  if (ended.runs.failed === 0) return;
  const runs = await operator.runs({ backfill_id: ended.backfill_id, limit: 500 });
  runs.filter((run) => run.state === "failed").forEach(sayRun);
  process.exitCode = 1;
}

function sayRun(run: Run) {
  const rows = run.metadata?.rows_written;
  const written = rows === undefined ? "" : `  ${String(rows)} rows`;
  const reason = run.error_code ? `  ${run.error_code}: ${run.error_detail}` : "";
  const check = run.metadata?.check as { passed: boolean; reason: string | null } | undefined;
  const warning = check && !check.passed ? `  CHECK FAILED ${check.reason}` : "";
  const head = `${run.created_at}  ${run.job}  ${run.partition}  ${run.trigger}  ${run.state}`;
  say(`${head}${written}${warning}${reason}  ${run.run_id}`);
}

main().catch((thrown: unknown) => {
  process.stderr.write(`${(thrown as Error).message}\n`);
  process.exit(1);
});
