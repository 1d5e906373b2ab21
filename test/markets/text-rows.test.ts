// Rows as text against a writer of a few lines: what rows share is encoded once and copied, and no
// mixture of instruments, vintages, days and chunks may show it.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import type { Batch } from "../../edge/markets/store/columns.ts";
import type { RecordShape } from "../../edge/markets/wire/record.ts";
import { encodeText, type TextFormat } from "../../edge/markets/wire/text.ts";
import { iso } from "../../shared/time.ts";
import { dice } from "../support/dice.ts";

const MINUTE = 60_000;
const INSTRUMENTS = ["hub", 'Zürich, "A"', "b".repeat(300)];
const AS_OF = Date.UTC(2026, 0, 1);

type Dice = ReturnType<typeof dice>;

interface Drawing {
  rows: number;
  /** Instruments and vintages come in runs of up to so many rows. */
  runMax: number;
  history: boolean;
}

function drawn(roll: Dice, { rows, runMax, history }: Drawing): Batch {
  const column = (of: () => number) => Float64Array.from({ length: rows }, of);
  const inRuns = (size: number) => {
    let [code, left] = [0, 0];
    return Uint8Array.from({ length: rows }, () => {
      if (left-- <= 0) [code, left] = [Math.floor(roll() * size), Math.floor(roll() * runMax)];
      return code;
    });
  };
  let instant = Date.UTC(1969, 11, 30) + Math.floor(roll() * 1e9);
  const value = () => (roll() < 0.1 ? NaN : roll() < 0.5 ? Math.round(roll() * 1e6) / 100 : roll());
  return {
    length: rows,
    datetime: column(() => {
      instant += roll() < 0.7 ? 15 * MINUTE : Math.floor(roll() * 3 * 86_400_000);
      return instant;
    }),
    instrument: inRuns(INSTRUMENTS.length),
    instruments: INSTRUMENTS,
    values: [column(value), column(value)],
    vintage: inRuns(5),
    vintages: Array.from({ length: 5 }, (_, seq) => ({
      seq: seq + 1,
      asOf: AS_OF + seq,
      reconstructed: seq % 2 === 1,
    })),
    retracted: null,
    ...(history && {
      knownTo: column(() => (roll() < 0.5 ? NaN : AS_OF + Math.floor(roll() * 1e9))),
    }),
  };
}

function* recordsOf(batch: Batch, { valueColumns, history }: RecordShape) {
  const orNull = (value: number | undefined) =>
    value === undefined || Number.isNaN(value) ? null : value;
  for (let row = 0; row < batch.length; row++) {
    const writer = batch.vintages[batch.vintage[row] ?? 0];
    const asOf = iso(writer?.asOf ?? 0);
    const until = orNull(batch.knownTo?.[row]);
    yield {
      Datetime: iso(batch.datetime[row] ?? 0),
      instrument_id: batch.instruments[batch.instrument[row] ?? 0],
      ...Object.fromEntries(
        valueColumns.map((name, column) => [name, orNull(batch.values[column]?.[row])]),
      ),
      as_of: asOf,
      vintage_reconstructed: writer?.reconstructed,
      ...(history && { known_from: asOf, known_to: until === null ? null : iso(until) }),
    };
  }
}

const field = (value: unknown) => {
  const text = value === null ? "" : String(value);
  return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function plainText(format: TextFormat, batches: readonly Batch[], shape: RecordShape): string {
  const records = batches.flatMap((batch) => [...recordsOf(batch, shape)]);
  if (format === "json") return JSON.stringify(records);
  if (format === "ndjson") return records.map((one) => `${JSON.stringify(one)}\n`).join("");
  const lines = [Object.keys(records[0] ?? {}), ...records.map((one) => Object.values(one))];
  return lines.map((line) => `${line.map(field).join()}\n`).join("");
}

async function* inTurn(batches: readonly Batch[]) {
  yield* batches;
}

/** The text, and the buffers that its chunks lay in. */
async function written(format: TextFormat, batches: readonly Batch[], shape: RecordShape) {
  const decoder = new TextDecoder();
  const buffers = new Set<ArrayBufferLike>();
  let [text, chunks] = ["", 0];
  for await (const chunk of encodeText(format, inTurn(batches), shape)) {
    text += decoder.decode(chunk, { stream: true });
    buffers.add(chunk.buffer);
    chunks++;
  }
  return { text: text + decoder.decode(), buffers, chunks };
}

describe("rows as text", () => {
  it.each(["json", "ndjson", "csv"] as const)(
    "are, in %s, what a plain writer makes of any of them",
    async (format) => {
      const roll = dice(7);
      for (const runMax of [1, 3, 9, 400]) {
        for (const history of [false, true]) {
          const shape = { valueColumns: ["value", "share"], history, provenance: null };
          const sizes = [1, 700, 2, 1_500];
          const batches = sizes.map((rows) => drawn(roll, { rows, runMax, history }));
          const { text, chunks } = await written(format, batches, shape);
          expect(chunks).toBeGreaterThan(2);
          expect(text === plainText(format, batches, shape)).toBe(true);
        }
      }
    },
  );

  it("take one buffer, however many they are", async () => {
    const batch = drawn(dice(8), { rows: 5_000, runMax: 50, history: false });
    const shape = { valueColumns: ["value"], history: false, provenance: null };
    const { chunks, buffers } = await written("json", [batch], shape);
    expect(chunks).toBeGreaterThan(8);
    expect(buffers.size).toBe(1);
  });

  it("take little memory beside that, of however many instruments and vintages they are", async () => {
    const [rows, instruments, vintages] = [32_768, 16_384, 1_000];
    const roll = dice(9);
    const batch: Batch = {
      length: rows,
      datetime: Float64Array.from({ length: rows }, (_, row) => Math.floor(row / instruments)),
      instrument: Uint32Array.from({ length: rows }, (_, row) => row % instruments),
      instruments: Array.from({ length: instruments }, (_, code) => `node ${code}`),
      values: [new Float64Array(rows)],
      vintage: Uint32Array.from({ length: rows }, () => Math.floor(roll() * vintages)),
      vintages: Array.from({ length: vintages }, (_, code) => ({
        seq: code + 1,
        asOf: AS_OF + code * MINUTE,
        reconstructed: false,
      })),
      retracted: null,
    };
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const shape = { valueColumns: ["value"], history: false, provenance: null };
    collect();
    const before = process.memoryUsage().heapUsed;
    let [most, chunks] = [0, 0];
    for await (const _ of encodeText("json", inTurn([batch]), shape)) {
      if (++chunks % 8 !== 0) continue;
      collect();
      most = Math.max(most, process.memoryUsage().heapUsed - before);
    }
    expect(chunks).toBeGreaterThan(30);
    // Measured: 7 MB.
    expect(most).toBeLessThan(20e6);
  });
});
