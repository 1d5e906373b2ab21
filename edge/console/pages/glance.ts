// What the overview knows of every pipeline, and which of it needs somebody. Bounded: a few
// statements, whatever the ledger holds.

import type { Job, PartitionState } from "../../../shared/wire/markets.ts";
import { liesAhead } from "../../markets/client/symbols.ts";
import { outcomeOf, verdictOf } from "../../markets/ingest/check.ts";
import { type DataAge, lateSince } from "../../markets/ingest/lateness.ts";
import { listJobs } from "../../markets/ingest/overview.ts";
import { partitionStates, recentKeys } from "../../markets/ingest/partition-states.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import { countOpenRefusals } from "../../markets/ingest/refusals.ts";
import { listed } from "../../markets/ingest/rules.ts";
import {
  type CheckSummary,
  type ExecutionSummary,
  jobsAtWork,
  liveExecutions,
  newestChecks,
  type SeriesSummary,
  summarizeSeries,
} from "../../markets/ingest/summaries.ts";
import { jobPath, number, schedulePath } from "./words.ts";

/** Partitions of each pipeline that the overview looks at. */
export const RECENT = 14;

/** One pipeline at a glance. */
export interface PipelineGlance extends DataAge {
  pipeline: Pipeline;
  job: Job;
  /** The execution of its live partition. */
  run: ExecutionSummary | undefined;
  isAtWork: boolean;
  check: CheckSummary | undefined;
  partitions: PartitionState[];
  /** How many series it fills. */
  series: number;
  /** Since when its data is late, epoch milliseconds, or null. */
  late: number | null;
  /** Changes that were refused and nobody accepted. */
  refusals: number;
}

/** Every pipeline at a glance. */
export async function glanceAll(ingest: IngestParts): Promise<PipelineGlance[]> {
  const { database, clock } = ingest;
  const now = clock();
  const names = PIPELINES.map(({ job }) => job);
  const apart = PIPELINES.filter(({ owns }) => owns).flatMap(({ libraries }) => libraries);
  const [jobs, runs, atWork, checks, series, refusals, partitions] = await Promise.all([
    listJobs(ingest),
    liveExecutions(database, names),
    jobsAtWork(database),
    newestChecks(database, names, 1),
    summarizeSeries(database, [...new Set(apart)]),
    countOpenRefusals(database),
    Promise.all(
      PIPELINES.map((one) =>
        partitionStates(database, one, recentKeys(one.partitions, RECENT, now), now),
      ),
    ),
  ]);
  return PIPELINES.map((pipeline, index): PipelineGlance => {
    const own = series.filter((one) => isOf(pipeline, one));
    const age = ageOf(own);
    return {
      ...age,
      pipeline,
      job: jobs[index] as Job,
      run: runs.get(pipeline.job),
      isAtWork: atWork.has(pipeline.job),
      check: checks.get(pipeline.job)?.[0],
      partitions: partitions[index] ?? [],
      series: own.reduce((sum, one) => sum + one.series, 0),
      late: lateSince(pipeline, age, now),
      refusals: refusals.get(pipeline.job) ?? 0,
    };
  });
}

const isOf = ({ libraries, owns }: Pipeline, { library, symbol }: SeriesSummary) =>
  libraries.includes(library) && (symbol === null || (owns?.(symbol) ?? true));

function ageOf(series: readonly SeriesSummary[]): DataAge {
  const max = (instants: readonly number[]) => (instants.length > 0 ? Math.max(...instants) : null);
  const isAhead = ({ library, symbol }: SeriesSummary) => liesAhead(library, symbol ?? "");
  return {
    newest: max(series.filter((one) => !isAhead(one)).map(({ newest }) => newest)),
    horizon: max(series.filter(isAhead).map(({ newest }) => newest)),
    asOf: max(series.map(({ as_of }) => as_of)),
  };
}

/** The verdict of a check as its run recorded it. */
export const checkVerdict = ({ check }: CheckSummary) => verdictOf(check && outcomeOf(check));

/** Something that somebody should look at, and where to act on it. */
export interface Need {
  /** The state whose sign and colour it has. */
  state: "failed" | "late" | "off" | "warning";
  title: string;
  what: string;
  href: string;
}

/** What needs somebody: failed, late and stale first, then what is off, then warnings. */
export function needsOf(glances: readonly PipelineGlance[]): Need[] {
  const order: Need["state"][] = ["failed", "late", "off", "warning"];
  const needs = glances.flatMap(needsOfOne);
  return needs.toSorted((left, right) => order.indexOf(left.state) - order.indexOf(right.state));
}

function needsOfOne({ pipeline, job, check, partitions, late, refusals }: PipelineGlance): Need[] {
  const { title } = pipeline;
  const path = jobPath(pipeline.job);
  const inState = (state: "failed" | "late"): Need[] => {
    const those = partitions.filter((one) => one.state === state);
    const [newest] = those;
    if (!newest) return [];
    const keys = listed(those.map(({ partition }) => partition));
    const what = `${number(those.length)} ${state}: ${keys}`;
    const href = newest.run_id ? `/runs/${newest.run_id}` : path;
    return [{ state, title, what, href }];
  };
  const off = job.schedules.filter(({ enabled }) => !enabled).map(({ schedule }) => schedule);
  const isMainOff = job.schedules[0]?.enabled === false;
  const verdict = check && checkVerdict(check);
  const needs: (Need | false)[] = [
    refusals > 0 && {
      state: "failed",
      title,
      what:
        refusals === 1
          ? "a change that withdraws many rows was refused: accept it, or wait for a sound answer"
          : `${number(refusals)} changes that withdraw many rows were refused: accept them, or wait ` +
            "for sound answers",
      href: `/checks#refusals-${pipeline.job}`,
    },
    late !== null && { state: "late", title, what: "its newest data is late", href: path },
    off.length > 0 && {
      state: "off",
      title,
      what: `${isMainOff ? "its schedule is" : "schedules are"} switched off: ${listed(off)}`,
      href: isMainOff ? schedulePath(off[0] ?? "") : `${path}#schedules`,
    },
    (verdict === "failed" || verdict === "warning") && {
      state: verdict,
      title,
      what: `its check: ${reasonOf(check)}`,
      href: `/checks#${pipeline.job}`,
    },
  ];
  return [...inState("failed"), ...inState("late"), ...needs.filter((need) => need !== false)];
}

const WORDS_MAX = 120;

function reasonOf(summary: CheckSummary | undefined): string {
  const check = summary?.check;
  if (!check?.passed) {
    return (check?.reason ?? summary?.error_detail ?? "the gate refused").slice(0, WORDS_MAX);
  }
  const stale = check.stale_symbols.length;
  const symbols = stale === 1 ? "stale symbol" : "stale symbols";
  const words = [...check.warnings, ...(stale > 0 ? [`${number(stale)} ${symbols}`] : [])];
  return listed(words);
}
