// What the providers answer today, beside what our pipelines expect of them: one partition of each
// is read and judged, and nothing is stored. It is an operator's first minute with a key.

import { z } from "zod";
import { Failure } from "../../shared/errors.ts";
import { iso, systemClock } from "../../shared/time.ts";
import { parseEnvironment } from "../http/config.ts";
import { expectedUntil } from "../markets/ingest/completeness.ts";
import type { Finding } from "../markets/ingest/gate.ts";
import { latestPartition, partitionRange, shiftPartition } from "../markets/ingest/partition.ts";
import type { Pipeline } from "../markets/ingest/pipeline.ts";
import { PIPELINES } from "../markets/ingest/pipelines.ts";
import {
  openUpstreams,
  PROVIDER_IDS,
  PROVIDER_SETTINGS,
  type Provider,
  requestIntervalsMs,
  type Upstreams,
} from "../markets/ingest/providers.ts";
import { politely } from "../markets/ingest/sources/upstream.ts";

/** What came of one pipeline's question. */
export interface ProbeResult {
  job: string;
  provider: Provider;
  /** The partition that was asked for: the last one that is over and owes all its values. */
  partition: string;
  /** The first request, without credentials; null where none was answered. */
  source_url: string | null;
  rows: number;
  series: ProbedSeries[];
  /** What is not as expected; none: the parsers fit today's answer. */
  differences: Finding[];
  /** Why nothing came; null: something did. */
  failure: { code: string; detail: string; arrived: unknown } | null;
}

/** The rows of one symbol. */
interface ProbedSeries {
  name: string;
  rows: number;
  /** Their first and last Datetime. */
  first: string;
  last: string;
  /** The smallest and the largest value of the first column; null: none has one. */
  min: number | null;
  max: number | null;
}

/** Asks for one partition of each pipeline of some providers, one after the other. */
export async function* probe(
  upstreams: Upstreams,
  { providers, now }: { providers: readonly Provider[]; now: number },
): AsyncGenerator<ProbeResult> {
  for (const pipeline of PIPELINES) {
    if (providers.includes(pipeline.provider)) yield await probeOne(pipeline, upstreams, now);
  }
}

async function probeOne(
  pipeline: Pipeline,
  upstreams: Upstreams,
  now: number,
): Promise<ProbeResult> {
  const { job, provider, partitions } = pipeline;
  let key = shiftPartition(partitions, latestPartition(partitions, now), -1);
  while (expectedUntil(pipeline, key) > now) key = shiftPartition(partitions, key, -1);
  const partition = partitionRange(partitions, key, now);
  const asked = { job, provider, partition: key };
  try {
    const answer = await pipeline.fetch(upstreams, { partition, window: partition, now });
    const { leftOut = [], findings = [], series, sourceUrl } = answer;
    const context = { partition, window: partition, now, hasLeftOut: leftOut.length > 0 };
    const judged = pipeline.gate(series, context);
    return {
      ...asked,
      source_url: sourceUrl,
      rows: series.reduce((total, { rows }) => total + rows.length, 0),
      series: series.filter(({ rows }) => rows.length > 0).map(summarized),
      differences: [...leftOut, ...findings, ...judged.findings],
      failure: null,
    };
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    const { code, message: detail, data } = thrown;
    const failure = { code, detail, arrived: data.arrived ?? null };
    return { ...asked, source_url: null, rows: 0, series: [], differences: [], failure };
  }
}

function summarized({
  library,
  symbol,
  rows,
}: Awaited<ReturnType<Pipeline["fetch"]>>["series"][number]): ProbedSeries {
  const times = rows.map(({ datetime }) => datetime);
  const values = rows.flatMap(({ values: [value = NaN] }) => (Number.isNaN(value) ? [] : [value]));
  const minOf = (all: readonly number[]) => all.reduce((min, one) => Math.min(min, one), Infinity);
  const maxOf = (all: readonly number[]) => all.reduce((max, one) => Math.max(max, one), -Infinity);
  return {
    name: `${library}/${symbol}`,
    rows: rows.length,
    first: iso(minOf(times)),
    last: iso(maxOf(times)),
    min: values.length > 0 ? minOf(values) : null,
    max: values.length > 0 ? maxOf(values) : null,
  };
}

/** The ways to the real providers that this environment has credentials of. */
export function realUpstreams(environment: object): Upstreams {
  const config = parseEnvironment(z.object(PROVIDER_SETTINGS), environment);
  const pause = (milliseconds: number) =>
    new Promise<void>((resume) => setTimeout(resume, milliseconds));
  const fetcher = { fetch: (url: string, init: object) => fetch(url, init), pause };
  return openUpstreams(config, politely(fetcher, requestIntervalsMs(config), systemClock));
}

/** The providers that a word names: one of them, or all where there is none; null: it is none. */
export function namedProviders(word: string | undefined): readonly Provider[] | null {
  if (word === undefined) return PROVIDER_IDS;
  const named = PROVIDER_IDS.filter((id) => id === word);
  return named.length > 0 ? named : null;
}

const SERIES_SHOWN = 3;

/** What is told to people of a result. */
export function linesOf(result: ProbeResult): string[] {
  const { job, provider, partition, rows, series, differences, failure } = result;
  const head = `${job} (${provider}, ${partition})`;
  if (failure) {
    const arrived = failure.arrived === null ? [] : [`  arrived: ${failure.arrived}`];
    return [`${head}: failed`, `  ${failure.code}: ${failure.detail}`, ...arrived];
  }
  const verdict = differences.length > 0 ? `${differences.length} differences` : "as expected";
  const shown = series
    .slice(0, SERIES_SHOWN)
    .map(
      ({ name, rows: count, first, last, min, max }) =>
        `  ${name}: ${count} rows, ${first} to ${last}, ${min} to ${max}`,
    );
  const more = series.length > SERIES_SHOWN ? [`  and ${series.length - SERIES_SHOWN} more`] : [];
  const found = differences.map(
    ({ severity, rule, count, where }) => `  ${severity}: ${rule} (${count}: ${where})`,
  );
  return [
    `${head}: ${rows} rows of ${series.length} series, ${verdict}`,
    ...shown,
    ...more,
    ...found,
  ];
}
