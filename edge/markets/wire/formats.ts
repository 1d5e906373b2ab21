// Which format an answer takes: the `format` parameter, else the first of Accept that we write,
// else JSON.

import type { Batch } from "../store/columns.ts";
import { encodeArrow } from "./arrow.ts";
import { encodeParquet } from "./parquet.ts";
import type { RecordShape } from "./record.ts";
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

/** The rows of the batches in a format, in parts. */
export function encodeRows(
  format: Format,
  batches: AsyncIterable<Batch>,
  shape: RecordShape,
): AsyncGenerator<Uint8Array> {
  if (format === "parquet") return encodeParquet(batches, shape);
  if (format === "arrow") return encodeArrow(batches, shape);
  return encodeText(format, batches, shape);
}
