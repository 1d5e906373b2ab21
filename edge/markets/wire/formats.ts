// Which format an answer takes: the `format` parameter, else the first of Accept that we write,
// else JSON.

import { binary } from "../../http/description.ts";
import { type Batch, BatchBuilder, sliceBatch } from "../store/columns.ts";
import { encodeArrow } from "./arrow.ts";
import { encodeParquet } from "./parquet.ts";
import { answerColumns, type RecordShape, type Table } from "./record.ts";
import { encodeText } from "./text.ts";

/** Content types by format; `text` says which are text, whose bytes follow from the rows alone. */
export const FORMATS = {
  json: { type: "application/json", text: true },
  ndjson: { type: "application/x-ndjson", text: true },
  csv: { type: "text/csv; charset=utf-8; header=present", text: true },
  parquet: { type: "application/vnd.apache.parquet", text: false },
  arrow: { type: "application/vnd.apache.arrow.stream", text: false },
} as const;

/** A format of `/series`. */
export type Format = keyof typeof FORMATS;
/** Names of the formats, as the parameter `format` takes them. */
export const FORMAT_NAMES = Object.keys(FORMATS) as [Format, ...Format[]];

/** Bodies of these formats, as a description names them. */
export const encodedContent = (names: readonly Format[]) =>
  Object.fromEntries(
    names.map((name) => [FORMATS[name].type, FORMATS[name].text ? plainText : binary]),
  );
// The library's types take only zod schemas where its documents take any schema.
const plainText = { schema: { type: "string" } as never };

const ALIASES: Readonly<Record<string, Format>> = {
  "application/json": "json",
  "application/*": "json",
  "*/*": "json",
  "application/x-ndjson": "ndjson",
  "application/ndjson": "ndjson",
  "text/csv": "csv",
  "application/vnd.apache.parquet": "parquet",
  "application/x-parquet": "parquet",
  "application/vnd.apache.arrow.stream": "arrow",
};

/** The format that an Accept header prefers; JSON when it names none of ours. */
export function preferredFormat(accept: string | undefined): Format {
  const wanted = (accept ?? "").split(",").flatMap((range) => {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const quality = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
    const format = ALIASES[type];
    return format ? [{ format, weight: quality === undefined ? 1 : Number(quality) }] : [];
  });
  const best = wanted
    .filter(({ weight }) => weight > 0)
    .toSorted((left, right) => right.weight - left.weight);
  return best[0]?.format ?? "json";
}

/** Rows of a row group of Parquet and of a record batch of Arrow. */
export const GROUP_ROWS = 32_768;

/** The rows of the batches in a format, in parts; a part holds until the next one is asked for. */
export function encodeRows(
  format: Format,
  batches: AsyncIterable<Batch>,
  shape: RecordShape,
): AsyncGenerator<Uint8Array> {
  const header = answerColumns(null, shape);
  if (format === "parquet") return encodeParquet(tables(batches, shape), header);
  if (format === "arrow") return encodeArrow(tables(batches, shape), header);
  return encodeText(format, batches, shape);
}

async function* tables(batches: AsyncIterable<Batch>, shape: RecordShape): AsyncGenerator<Table> {
  for await (const group of evenGroups(batches, shape)) {
    yield { length: group.length, columns: answerColumns(group, shape) };
  }
}

/**
 * The same rows in groups of one size, whatever the objects that they come from: compaction cuts
 * those anew, and the bytes of an answer stay what they were.
 */
async function* evenGroups(batches: AsyncIterable<Batch>, { valueColumns }: RecordShape) {
  const builder = new BatchBuilder(valueColumns.length);
  for await (const batch of batches) {
    for (let from = 0; from < batch.length; ) {
      const to = Math.min(from + GROUP_ROWS - builder.length, batch.length);
      if (to - from === GROUP_ROWS) yield sliceBatch(batch, from, to);
      else {
        builder.append(batch, from, to);
        if (builder.length === GROUP_ROWS) yield builder.lend();
      }
      from = to;
    }
  }
  if (builder.length > 0) yield builder.lend();
}
