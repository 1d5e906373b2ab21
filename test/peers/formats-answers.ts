// Answers of `/series` and `/panel` in every format, with the rows that the JSON contract says they
// hold: hard numbers, missing values, names with commas and quotes, clocks that change.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { commit } from "../../edge/markets/store/commit.ts";
import type { Services } from "./services.ts";

type Kind = "instant" | "number" | "count" | "flag" | "text";

/** One answer as the Python readers are told of it. */
export interface Answer {
  name: string;
  format: string;
  path: string;
  /** A file with the same rows as JSON. */
  expected: string;
  columns: Record<string, Kind>;
}

const HOUR = 3_600_000;
/** The clocks of Chicago change two days later. */
const FROM = Date.UTC(2026, 2, 6);
const HOURS = 96;
const LIBRARY = "power.demand";
const INSTRUMENTS = ["power.demand.hub", 'hub, "north"', "Zürich–Süd"];
/** Doubles that a careless writer or reader gets wrong. */
const HARD = [
  0,
  -0.01,
  0.1 + 0.2,
  1 / 3,
  1e-7,
  1.5e-300,
  1.7976931348623157e308,
  9_007_199_254_740_991,
  123_456.789,
  -40_000,
];

const SERIES: Record<string, Kind> = {
  Datetime: "instant",
  instrument_id: "text",
  value: "number",
  spread: "number",
  as_of: "instant",
  vintage_reconstructed: "flag",
};
const VERSIONS: Record<string, Kind> = {
  ...SERIES,
  store_version: "count",
  source_url: "text",
  source_published_at: "instant",
  run_id: "text",
  known_from: "instant",
  known_to: "instant",
};
const PANEL: Record<string, Kind> = {
  Datetime: "instant",
  local: "text",
  ...Object.fromEntries(INSTRUMENTS.toSorted().map((name) => [name, "number" as const])),
  "power.demand.other": "number",
};

const QUESTIONS: readonly {
  name: string;
  path: string;
  formats: readonly string[];
  columns: Record<string, Kind>;
}[] = [
  {
    name: "series",
    path: `/series?library=${LIBRARY}&symbol=hub`,
    formats: ["json", "ndjson", "csv", "parquet", "arrow"],
    columns: SERIES,
  },
  {
    name: "versions",
    path: `/series?library=${LIBRARY}&symbol=hub&includeHistory=true&provenance=full`,
    formats: ["json", "ndjson", "csv", "parquet", "arrow"],
    columns: VERSIONS,
  },
  {
    name: "empty",
    path: `/series?library=${LIBRARY}&symbol=hub&as_of=2020-01-01`,
    formats: ["json", "csv", "parquet", "arrow"],
    columns: SERIES,
  },
  {
    name: "panel",
    path: `/panel?library=${LIBRARY}&symbols=hub,other&time_zone=America/Chicago`,
    formats: ["json", "ndjson", "csv", "parquet", "arrow"],
    columns: PANEL,
  },
];

/** Commits the series, asks every question in every format, and lists the files. */
export async function writeAnswers(services: Services): Promise<Answer[]> {
  await commitSeries(services);
  const answers: Answer[] = [];
  for (const { name, path, formats, columns } of QUESTIONS) {
    const ask = async (format: string) => {
      const response = await fetch(`${services.urls.markets}${path}&format=${format}`, {
        headers: { "X-API-Key": services.apiKey },
      });
      const bytes = await response.bytes();
      if (response.status !== 200) throw new Error(`${path}: ${Buffer.from(bytes).toString()}`);
      const file = join(services.folder, `${name}.${format}`);
      writeFileSync(file, bytes);
      return file;
    };
    const expected = await ask("json");
    for (const format of formats) {
      const file = format === "json" ? expected : await ask(format);
      answers.push({ name, format, path: file, expected, columns });
    }
  }
  return answers;
}

/** More than one row group of whole numbers. */
const MANY = 40_000;

/** The address of a settled answer, how many rows it has and what they add up to. */
export async function writeAddress({ urls, writer }: Services): Promise<string[]> {
  const vintage = await commit(writer, {
    library: LIBRARY,
    symbol: "many",
    valueColumns: ["value"],
    rows: Array.from({ length: MANY }, (_, hour) => ({
      datetime: FROM + hour * HOUR,
      instrumentId: "power.demand.many",
      values: [hour],
    })),
    covered: { from: FROM, to: FROM + MANY * HOUR },
    sandbox: true,
    partition: "2026-03-06",
    reconstructed: false,
    runId: "44444444-4444-4444-8444-444444444444",
    sourceUrl: "https://api.example.com/v2/",
  });
  const asOf = new Date(vintage?.asOf ?? 0).toISOString();
  const url = `${urls.markets}/series?library=${LIBRARY}&symbol=many&as_of=${asOf}`;
  return [url, String(MANY), String((MANY * (MANY - 1)) / 2)];
}

/** Two series; of the first, a backfill and a revision that also withdraws rows. */
async function commitSeries({ writer }: Services) {
  const rows = (from: number, revision: number) =>
    INSTRUMENTS.flatMap((instrumentId, instrument) =>
      Array.from({ length: HOURS - from }, (_, hour) => {
        const index = (from + hour) * INSTRUMENTS.length + instrument;
        const hard = HARD[index % HARD.length] ?? 0;
        return {
          // One that is no full hour, to the millisecond.
          datetime: FROM + (from + hour) * HOUR + (index === 1 ? 123 : 0),
          instrumentId,
          values: [
            index % 11 === 4 ? Number.NaN : hard + revision,
            index % 5 === 0 ? Number.NaN : -index / 8,
          ],
        };
      }),
    );
  const common = { library: LIBRARY, sandbox: true, partition: "2026-03-06" };
  const valueColumns = ["value", "spread"];
  await commit(writer, {
    ...common,
    symbol: "hub",
    valueColumns,
    rows: rows(0, 0),
    covered: { from: FROM, to: FROM + HOURS * HOUR },
    reconstructed: true,
    runId: "11111111-1111-4111-8111-111111111111",
    sourceUrl: "https://api.example.com/v2/?columns=a,b",
    sourcePublishedAt: FROM + HOURS * HOUR,
  });
  await commit(writer, {
    ...common,
    symbol: "hub",
    valueColumns,
    rows: rows(48, 1).filter((_, index) => index % 7 !== 3),
    covered: { from: FROM + 48 * HOUR, to: FROM + HOURS * HOUR },
    reconstructed: false,
    runId: "22222222-2222-4222-8222-222222222222",
    sourceUrl: 'https://api.example.com/v2/?q="second"',
    sourcePublishedAt: null,
  });
  await commit(writer, {
    ...common,
    symbol: "other",
    valueColumns: ["value"],
    rows: Array.from({ length: HOURS / 2 }, (_, hour) => ({
      datetime: FROM + hour * 2 * HOUR,
      instrumentId: "power.demand.other",
      values: [hour % 4 === 0 ? Number.NaN : hour * 0.1],
    })),
    covered: { from: FROM, to: FROM + HOURS * HOUR },
    reconstructed: false,
    runId: "33333333-3333-4333-8333-333333333333",
    sourceUrl: "https://api.example.com/v2/",
  });
}
