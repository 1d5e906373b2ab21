// What a backfill would be before it is: how many runs, about how long, and the question whether to
// start it where they are many.

import type { FC } from "hono/jsx";
import { partitionsBetween } from "../../markets/ingest/partition.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { type Pipeline, requirePipeline } from "../../markets/ingest/pipeline.ts";
import { intervalMs } from "../../markets/ingest/providers.ts";
import { type JobPace, jobPace } from "../../markets/ingest/summaries.ts";
import { Facts } from "./components.tsx";
import { Form, type View } from "./layout.tsx";
import { jobPath, length, number } from "./words.ts";

/** A backfill of more runs than this is asked about. */
const RUNS_UNASKED_MAX = 100;

/** A backfill as its form names it. */
export interface BackfillFields {
  job: string;
  first: string;
  last: string;
  key: string;
}

/** How many runs a backfill is, and about how long it takes. */
export interface BackfillPlan {
  runs: number;
  /** In words. */
  time: string;
  /** Whether it is started without asking. */
  isSmall: boolean;
}

/**
 * Runs of a provider go one at a time, each as long as those before it, and never faster than its
 * politeness lets one request follow the other.
 */
export function timeOf({ provider }: Pipeline, { medianMs }: JobPace, runs: number): string {
  const politely = intervalMs(provider);
  if (medianMs === null) return `at least ${length(runs * politely)}; no run was measured yet`;
  return `about ${length(runs * Math.max(medianMs, politely))}`;
}

/** Plans a backfill; fails with `unknown_job` or `bad_partition`. */
export async function planBackfill(
  { pipelines, database, clock }: IngestParts,
  { job, first, last }: Pick<BackfillFields, "job" | "first" | "last">,
): Promise<BackfillPlan> {
  const pipeline = requirePipeline(pipelines, job);
  const runs = partitionsBetween(pipeline.partitions, first, last, clock()).length;
  const time = timeOf(pipeline, await jobPace(database, job), runs);
  return { runs, time, isSmall: runs <= RUNS_UNASKED_MAX };
}

/** Asks whether a large backfill is to be started. */
export const confirmView = (
  { title }: Pipeline,
  { runs, time }: BackfillPlan,
  { job, first, last, key }: BackfillFields,
): View => ({
  title: `Backfill ${title}?`,
  section: "backfills",
  body: (here) => (
    <>
      <p class="crumbs">
        <a href={jobPath(job)}>{title}</a>
      </p>
      <h1>Start {number(runs)} runs?</h1>
      <section class="card" aria-label="What is asked for">
        <Facts
          facts={[
            ["Pipeline", title],
            [
              "Partitions",
              <span class="number">
                {first} to {last}
              </span>,
            ],
            ["Runs", <span class="number">{number(runs)}</span>],
            ["Time", time],
          ]}
        />
        <p class="soft">
          Runs of one provider go one at a time, those of schedules between them. A backfill can be
          canceled at any time; what it has committed stays.
        </p>
        <div class="actions">
          <Form here={here} action={`${jobPath(job)}/backfill`} label="Confirm the backfill">
            <Hidden fields={{ first, last, key, confirmed: "true" }} />
            <button type="submit">Start {number(runs)} runs</button>
          </Form>
          <a class="button quiet" href={`${jobPath(job)}#backfill`}>
            Do not start it
          </a>
        </div>
      </section>
    </>
  ),
});

const Hidden: FC<{ fields: Readonly<Record<string, string>> }> = ({ fields }) => (
  <>
    {Object.entries(fields).map(([name, value]) => (
      <input type="hidden" name={name} value={value} />
    ))}
  </>
);
