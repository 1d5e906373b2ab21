// What a pipeline is: one unit of ingest. Every pipeline is an entry of `pipelines.ts`.

import { Failure } from "../../../shared/errors.ts";
import type { Range } from "../store/rows.ts";
import type { FetchedSeries, Finding, GateContext, GateReport } from "./gate.ts";
import type { Partitions } from "./partition.ts";
import type { Provider, Upstreams } from "./providers.ts";
import type { ReleaseTime } from "./releases.ts";
import type { Schedule } from "./schedule.ts";
import type { TopicsOf } from "./topics.ts";

/** What an execution asks its provider for; instants in epoch milliseconds. */
export interface FetchRequest {
  /** The partition's own valid time. */
  partition: Range;
  /** What is to be fetched and committed: the partition, with what the pipeline looks back on. */
  window: Range;
  now: number;
}

/** A provider's answer to an execution. */
export interface FetchResult {
  series: FetchedSeries[];
  /** URL of the first request, without credentials; a sandbox's begins with `sandbox://`. */
  sourceUrl: string;
  sandbox: boolean;
  /** When the provider published it, epoch milliseconds, where it says so. */
  publishedAt?: number;
  /** What the source itself noticed; an error rejects the whole answer. */
  findings?: Finding[];
  /** What of the answer could not be read, and is left out of `series`; the rest is sound. */
  leftOut?: Finding[];
  /**
   * The answer lacks rows that exist, or may exist. Stored rows that it lacks are kept, as they are
   * where rows were left out.
   */
  isPartial?: boolean;
}

/** Maximal age of the newest value, from the end of the window or, if sooner, from `as_of`. */
export interface Freshness {
  warningMs: number;
  errorMs: number;
}

/** A dated publication of a provider. */
export interface Publication {
  publishedAt: number;
  sourceUrl: string;
}

/** Rules about an answer beside the last committed one, where all is published anew each time. */
export interface PublicationRules {
  /** Before the commit; an error refuses the whole answer. */
  judge: (answer: Publication, last: Publication) => Finding[];
  /** After it, of the valid times of the rows that were revised or retracted. */
  judgeChanges: (
    changedAt: readonly number[],
    context: { answer: Publication; last: Publication | null; now: number },
  ) => Finding[];
}

/** How long an execution waits for a partition that is not published yet. */
export interface Release {
  /** Pause between two attempts from the expected time on. */
  everyMs: number;
  /** From the expected time on; after it the execution is `late`. */
  windowMs: number;
  /** When a partition is expected; null, the default: at the first tick that aims at it. */
  expectedAt?: (key: string) => ReleaseTime | null;
}

/** One unit of ingest: what is fetched, when, and how it is checked. */
export interface Pipeline {
  /** Its name in the operator API, the console and the command line. */
  job: string;
  title: string;
  provider: Provider;
  libraries: readonly string[];
  /** Whether a symbol of its libraries is this pipeline's; all are where no other fills them. */
  owns?: (symbol: string) => boolean;
  partitions: Partitions;
  /** The first is the spec's; a pipeline without any is started by hand. */
  schedules: readonly Schedule[];
  /** The zone in which its market reads the time. */
  timeZone: string;
  valueColumns: readonly string[];
  /** Where its instruments are located, or what they are about, for the catalog graph. */
  topicsOf: TopicsOf;
  /**
   * A forward execution also re-reads what lies this long before its partition, since providers
   * revise silently, and fetches what they forecast this long after it.
   */
  lookbackMs: number;
  lookaheadMs?: number;
  freshness: Freshness;
  /**
   * Longest time from the Datetime of a row to the tick that can learn it, in normal operation and
   * with holidays; the row's own interval is part of it. A row that a forward execution learns
   * later for the first time is flagged as reconstructed.
   */
  publishedWithinMs: number;
  /**
   * Null: no execution waits. One that finds no value of its partition yet succeeds with what else
   * there was, and the partition waits for a later one.
   */
  release: Release | null;
  /**
   * Without a release: from the start of a partition until it owes its first value. Default: the
   * age at which data is stale.
   */
  owedMs?: number;
  fetch: (upstreams: Upstreams, request: FetchRequest) => Promise<FetchResult>;
  /**
   * Whether the partition's values are there. Default: one row in the partition is enough.
   */
  complete?: (accepted: readonly FetchedSeries[], partition: Range) => boolean;
  gate: (fetched: readonly FetchedSeries[], context: GateContext) => GateReport;
  /** Only for a pipeline whose fetch says when its answer was published. */
  publications?: PublicationRules;
  /** Why a partition may have no rows, such as a holiday's; null, the default: it owes some. */
  mayBeEmpty?: (partition: Range, now: number) => string | null;
}

/** The pipeline of a job; undefined when it is gone, as an old execution's may be. */
export const findPipeline = (pipelines: readonly Pipeline[], job: string): Pipeline | undefined =>
  pipelines.find((pipeline) => pipeline.job === job);

/** The pipeline of a job; fails with `unknown_job`, naming those there are. */
export function requirePipeline(pipelines: readonly Pipeline[], job: string): Pipeline {
  const pipeline = findPipeline(pipelines, job);
  if (pipeline) return pipeline;
  const known = pipelines.map((one) => one.job).join(", ");
  throw new Failure("unknown_job", `no job is named ${JSON.stringify(job)}; there are: ${known}`);
}

/** A schedule with the pipeline it fires. */
export interface PipelineSchedule {
  pipeline: Pipeline;
  schedule: Schedule;
}

/** Every schedule with its pipeline. */
export const schedulesOf = (pipelines: readonly Pipeline[]): PipelineSchedule[] =>
  pipelines.flatMap((pipeline) => pipeline.schedules.map((schedule) => ({ pipeline, schedule })));

/** The schedule of a name with its pipeline; fails with `unknown_schedule`. */
export function requireSchedule(pipelines: readonly Pipeline[], name: string): PipelineSchedule {
  const entry = schedulesOf(pipelines).find(({ schedule }) => schedule.name === name);
  if (entry) return entry;
  throw new Failure("unknown_schedule", `no schedule is named ${JSON.stringify(name)}`);
}
