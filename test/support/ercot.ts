// ERCOT's pipelines over the sandbox or over what a test answers instead, without a store: fetch
// and gate, at an instant that the test decides.

import { expect, onTestFinished } from "vitest";
import type { SandboxAnswer, SandboxRequest } from "../../edge/local/sandbox/answers.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { latestPartition, partitionRange } from "../../edge/markets/ingest/partition.ts";
import type { FetchResult, Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { requirePipeline } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import type { Upstreams } from "../../edge/markets/ingest/providers.ts";
import type { ErcotApi } from "../../edge/markets/ingest/sources/ercot-api.ts";
import type { ErcotSite } from "../../edge/markets/ingest/sources/ercot-mis.ts";
import type { Range } from "../../edge/markets/store/rows.ts";
import { Failure } from "../../shared/errors.ts";
import { upstreamsOf } from "./upstreams.ts";

type Answerer = (request: SandboxRequest, count: number) => SandboxAnswer | undefined;

export interface Ercot {
  sandbox: Sandbox;
  /** What was asked so far. */
  requests: SandboxRequest[];
  pauses: number[];
  upstreams: Upstreams;
  api: ErcotApi;
  site: ErcotSite;
  now: number;
  /** Fetches a partition, the newest by default, and judges it, as a run would. */
  run: (job: string, partition?: string) => Promise<Materialization>;
  /** From now on there are no credentials: the public documents serve. */
  withoutCredentials: () => void;
}

export interface Materialization {
  fetched: FetchResult;
  window: Range;
  report: ReturnType<Pipeline["gate"]>;
}

/** Starts ERCOT's sandbox for one test; `answer` may answer instead. */
export async function startErcot(at: string, answer: Answerer = () => undefined): Promise<Ercot> {
  const requests: SandboxRequest[] = [];
  const pauses: number[] = [];
  const sandbox = await startSandbox({
    clock: () => ercot.now,
    fault: (_, request) => {
      requests.push(request);
      return answer(request, requests.length);
    },
  });
  onTestFinished(() => sandbox.close());
  const pause = async (milliseconds: number) => void pauses.push(milliseconds);
  const upstreams = upstreamsOf({ SANDBOX_URL: sandbox.url }, { pause });
  const access = upstreams.ercot();
  const ercot: Ercot = {
    sandbox,
    requests,
    pauses,
    upstreams,
    now: Date.parse(at),
    api: access.api as ErcotApi,
    site: access.site,
    run: (job, partition) => run(ercot, job, partition),
    withoutCredentials: () => {
      ercot.upstreams = { ...upstreams, ercot: () => ({ ...access, api: null }) };
    },
  };
  return ercot;
}

async function run(ercot: Ercot, job: string, key?: string): Promise<Materialization> {
  const pipeline = requirePipeline(PIPELINES, job);
  if (!pipeline) throw new Error(`no pipeline is named ${job}`);
  const { now, upstreams } = ercot;
  const newest = latestPartition(pipeline.partitions, now);
  const partition = partitionRange(pipeline.partitions, key ?? newest, now);
  const isForward = key === undefined || key === newest;
  const from = partition.from - (isForward ? pipeline.lookbackMs : 0);
  const window = { from, to: partition.to };
  const fetched = await pipeline.fetch(upstreams, { partition, window, now });
  const hasLeftOut = (fetched.leftOut ?? []).length > 0;
  const report = pipeline.gate(fetched.series, { partition, window, now, hasLeftOut });
  return { fetched, window, report };
}

/** Rows of a symbol, by ISO instant. */
export function valuesOf({ fetched }: Materialization, symbol: string): Map<string, number> {
  const rows = fetched.series.find((series) => series.symbol === symbol)?.rows ?? [];
  return new Map(
    rows.map(({ datetime, values }) => [new Date(datetime).toISOString(), values[0] ?? NaN]),
  );
}

/** The failure of a run; none of its text holds a secret. */
export async function failureOf(ercot: Ercot, job = "realtime_prices", partition?: string) {
  const thrown = await ercot.run(job, partition).catch((failure: unknown) => failure);
  expect(thrown).toBeInstanceOf(Failure);
  const failure = thrown as Failure;
  const text = JSON.stringify([failure.message, failure.data, String(failure.cause)]);
  expect(text).not.toMatch(/hunter2|sandbox-token/);
  return failure;
}
