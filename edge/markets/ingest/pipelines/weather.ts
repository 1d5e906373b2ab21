// The weather pipeline: monthly heating and cooling degree days of the states, the Census divisions
// and the nation, from NOAA's nClimDiv.

import { addMonths, DAY, MINUTE } from "../../../../shared/time.ts";
import type { Row } from "../../store/rows.ts";
import {
  acceptSound,
  counted,
  type FetchedSeries,
  type Finding,
  finding,
  type GateContext,
  type GateReport,
  judgeStructure,
  nothingSent,
  offending,
} from "../gate.ts";
import { latestPartition, type Partitions } from "../partition.ts";
import type { FetchRequest, FetchResult, Pipeline, Publication } from "../pipeline.ts";
import type { Upstreams } from "../providers.ts";
import { AREA_NAMES, type Element, fetchDegreeDays } from "../sources/noaa.ts";
import { inRegion } from "../topics.ts";

const NEW_YORK = "America/New_York";
const LIBRARY = "weather";
/** A month is published on the 4th to 9th of the next. */
const MONTHS: Partitions = {
  unit: "month",
  first: "1895-01-01",
  offset: -1,
  lagMs: 5 * DAY,
  earlyMs: 2 * DAY,
};
const ELEMENTS: readonly Element[] = ["hdd", "cdd"];
/** A month's °F-days; the recorded extremes are 2,389 and about 800. */
const VALUE_MAX: Readonly<Record<string, number>> = { hdd: 2_500, cdd: 1_500 };

/** Monthly degree days, °F-days. */
export const degreeDays: Pipeline = {
  job: "degree_days",
  title: "Degree days",
  provider: "noaa",
  libraries: [LIBRARY],
  topicsOf: inRegion,
  partitions: MONTHS,
  schedules: [
    { name: "degree_days", cron: "0 12 6 * *", timeZone: NEW_YORK, aim: "latest" },
    { name: "degree_days_repair", cron: "13,33,53 * * * *", timeZone: NEW_YORK, aim: "unfinished" },
  ],
  timeZone: NEW_YORK,
  valueColumns: ["value"],
  // Twenty-four months, since two calendar years are revised.
  lookbackMs: 731 * DAY,
  freshness: { warningMs: 45 * DAY, errorMs: 45 * DAY },
  // A month of 31 days, published by the 9th of the next; the release window ends on the 20th.
  publishedWithinMs: 51 * DAY,
  // A request each half hour, and once it is late each twenty minutes, of a page of some kilobytes:
  // 48 a day while a month is awaited, 72 while it is late.
  release: { everyMs: 30 * MINUTE, windowMs: 14 * DAY },
  fetch: fetchWeather,
  complete: (accepted, partition) =>
    ELEMENTS.every((element) =>
      accepted.some(
        ({ symbol, rows }) =>
          symbol === element &&
          rows.some(({ datetime }) => datetime >= partition.from && datetime < partition.to),
      ),
    ),
  gate: gateWeather,
  publications: { judge: judgeStamp, judgeChanges: judgeOldChanges },
};

async function fetchWeather(upstreams: Upstreams, { window }: FetchRequest): Promise<FetchResult> {
  const access = upstreams.noaa();
  const { values, leftOut, ...origin } = await fetchDegreeDays(access, window, upstreams.fetcher);
  const series = ELEMENTS.map((element): FetchedSeries => {
    const rows = values
      .filter((one) => one.element === element)
      .map(
        ({ area, month, value }): Row => ({
          datetime: month,
          instrumentId: `${LIBRARY}.${element}.${area}`,
          values: [value],
        }),
      );
    rows.sort((left, right) => left.datetime - right.datetime);
    return { library: LIBRARY, symbol: element, rows };
  });
  return { series, ...origin, sandbox: access.sandbox, leftOut: leftOut.findings() };
}

/** Monthly degree days, °F. Each element is judged by itself. */
export function gateWeather(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const structure = {
    stepMs: null,
    horizonMs: 0,
    isKnown: (symbol: string) => symbol in VALUE_MAX,
  };
  const { accepted, findings } = acceptSound(fetched, (series) => [
    ...judgeStructure(series, context, structure),
    ...judgeMonths(series),
  ]);
  return { accepted, findings: [...nothingSent(fetched), ...findings] };
}

function judgeMonths({ rows, symbol }: FetchedSeries): Finding[] {
  const max = VALUE_MAX[symbol] ?? Infinity;
  const beginsNoMonth = rows.filter(({ datetime }) => addMonths(datetime, 0) !== datetime);
  const unlikely = rows.filter(({ values: [value = NaN] }) => !(value >= 0 && value <= max));
  const months = Map.groupBy(rows, ({ datetime }) => datetime);
  const partial = [...months.values()].filter((one) => one.length < AREA_NAMES.length);
  return counted([
    offending("error", "off_grid", beginsNoMonth, symbol),
    offending("error", "out_of_bounds", unlikely, symbol),
    finding("warning", "areas_missing", partial.length, symbol),
  ]);
}

/** An older answer than the last, from a directory set back or a mirror that lags, is refused. */
function judgeStamp(answer: Publication, last: Publication): Finding[] {
  const isOlder = answer.publishedAt < last.publishedAt;
  return counted([finding("error", "older_than_last", Number(isOlder), answer.sourceUrl)]);
}

/** Only the last two calendar years are revised, unless all years are, in a new version. */
function judgeOldChanges(
  changedAt: readonly number[],
  { answer, last, now }: { answer: Publication; last: Publication | null; now: number },
): Finding[] {
  if (last && versionOf(answer) !== versionOf(last)) return [];
  const newest = new Date(latestPartition(MONTHS, now));
  const revisedFrom = Date.UTC(newest.getUTCFullYear() - 1, 0, 1);
  const old = changedAt.filter((instant) => instant < revisedFrom);
  return counted([finding("warning", "settled_months_changed", old.length, answer.sourceUrl)]);
}

const versionOf = ({ sourceUrl }: Publication) => /-(v[\d.]+)-\d{8}$/.exec(sourceUrl)?.[1];
