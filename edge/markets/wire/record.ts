// What a record of an answer holds, and its fields as typed columns for the binary formats.

import { type Batch, type Codes, usedEntries } from "../store/columns.ts";
import type { Provenance } from "../store/listings.ts";

/** What a row's record holds beyond its values. */
export interface RecordShape {
  valueColumns: readonly string[];
  /** Versions carry `known_from` and `known_to`. */
  history: boolean;
  /** By `seq`; null leaves the origin of each row out. */
  provenance: ReadonlyMap<number, Provenance> | null;
}

/** One column: plain numbers, or codes into a dictionary where rows repeat. */
export type AnswerColumn = {
  name: string;
  kind: "instant" | "number" | "count" | "flag" | "text";
  /** NaN, or a null of the dictionary, means no value. */
  optional: boolean;
} & (
  | { values: Float64Array | Uint8Array }
  | { codes: Codes; dictionary: readonly (string | number | null)[] }
);

/** The store keeps instants in milliseconds; binary formats count in microseconds. */
const MICROS_A_MILLI = 1_000;

/** What binary formats multiply the milliseconds of an instant by; 1 for other columns. */
export const factorOf = (kind: AnswerColumn["kind"]) => (kind === "instant" ? MICROS_A_MILLI : 1);

/** Rows as typed columns: a row group of Parquet, a record batch of Arrow. */
export interface Table {
  length: number;
  columns: readonly AnswerColumn[];
}

const NOTHING: Batch = {
  length: 0,
  datetime: new Float64Array(0),
  instrument: new Uint8Array(0),
  instruments: [],
  values: [],
  vintage: new Uint8Array(0),
  vintages: [],
  retracted: null,
};

/** A batch's columns in the records' order; without a batch, their names and kinds. */
export function answerColumns(batch: Batch | null, shape: RecordShape): AnswerColumn[] {
  const { datetime, values, knownTo, ...coded } = batch ?? NOTHING;
  const { codes: instrument, entries: instruments } = usedEntries(
    coded.instrument,
    coded.instruments,
  );
  const { codes: vintage, entries: vintages } = usedEntries(coded.vintage, coded.vintages);
  const required = { optional: false } as const;
  const asOf = vintages.map((writer) => writer.asOf);
  const flags = new Uint8Array(vintage.length);
  const reconstructed = Uint8Array.from(vintages, (writer) => (writer.reconstructed ? 1 : 0));
  for (let row = 0; row < flags.length; row++) {
    flags[row] = reconstructed[vintage[row] as number] as number;
  }
  const byVintage = (dictionary: readonly (string | number | null)[]) => ({
    codes: vintage,
    dictionary,
  });
  const columns: AnswerColumn[] = [
    { name: "Datetime", kind: "instant", ...required, values: datetime },
    {
      name: "instrument_id",
      kind: "text",
      ...required,
      codes: instrument,
      dictionary: instruments,
    },
    ...shape.valueColumns.map((name, column): AnswerColumn => {
      const numbers = values[column] ?? new Float64Array(0);
      return { name, kind: "number", optional: true, values: numbers };
    }),
    { name: "as_of", kind: "instant", ...required, ...byVintage(asOf) },
    { name: "vintage_reconstructed", kind: "flag", ...required, values: flags },
  ];
  if (shape.provenance) columns.push(...provenanceColumns(vintage, vintages, shape.provenance));
  if (shape.history) {
    const ends = knownTo ?? new Float64Array(0);
    columns.push(
      { name: "known_from", kind: "instant", ...required, ...byVintage(asOf) },
      { name: "known_to", kind: "instant", optional: true, values: ends },
    );
  }
  return columns;
}

/** Where each row came from: constant for all rows of a vintage. */
function provenanceColumns(
  vintage: Codes,
  vintages: Batch["vintages"],
  provenance: ReadonlyMap<number, Provenance>,
): AnswerColumn[] {
  const origins = vintages.map(({ seq }) => provenance.get(seq));
  const valuesOf = <Value>(value: (origin: Provenance) => Value) => ({
    codes: vintage,
    dictionary: origins.map((origin) => (origin ? value(origin) : null)),
  });
  return [
    {
      name: "store_version",
      kind: "count",
      optional: false,
      codes: vintage,
      dictionary: vintages.map(({ seq }) => seq),
    },
    {
      name: "source_url",
      kind: "text",
      optional: true,
      ...valuesOf(({ sourceUrl }) => sourceUrl),
    },
    {
      name: "source_published_at",
      kind: "instant",
      optional: true,
      ...valuesOf(({ sourcePublishedAt }) => sourcePublishedAt),
    },
    { name: "run_id", kind: "text", optional: true, ...valuesOf(({ runId }) => runId) },
  ];
}
