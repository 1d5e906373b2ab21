// The binary columns of annotations: what is written is what is read, however the bytes are cut;
// other bytes are refused; and a difference makes of an older table the newer one.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { applyDifference } from "../../shared/columns/column-difference.ts";
import {
  BLOCK_ROWS_MAX,
  COLUMNS_VERSION,
  type ColumnsHeader,
  confidenceCode,
  confidenceOf,
  ID_BYTES,
  idBytes,
  idText,
  NO_CONFIDENCE,
  PROLOGUE_BYTES,
  type RowColumns,
} from "../../shared/columns/column-layout.ts";
import { ColumnsError, type ColumnTable, readColumns } from "../../shared/columns/column-reader.ts";
import {
  deletedBlock,
  endBlock,
  headerBytes,
  newRowsBlock,
} from "../../shared/columns/column-writer.ts";

const video = (index: number) => ({
  video_id: `00000000-0000-4000-8000-00000000000${index}`,
  filename: `ä ${index}.mp4`,
  width: 1920,
  height: 1080,
  frame_count: 300,
});
const HEADER: ColumnsHeader = {
  version: COLUMNS_VERSION,
  job_id: "00000000-0000-4000-8000-0000000000ff",
  edits_seq: 7,
  after_seq: null,
  threshold: 0.5,
  classes: [{ number: 3, name: "лодка" }],
  videos: [video(1), video(2), video(3)],
  rows: 0,
};

/** A row as an object, whose fields are those of the columns. */
interface Row {
  id: string;
  video: number;
  frame: number;
  class: number;
  state: number;
  source: number;
  flags: number;
  confidence: number;
  box: number[];
  revision: number;
  track: number;
}
const u16 = fc.nat(65_535);
const u32 = fc.nat(4_294_967_295);
const Rows = fc.uniqueArray(
  fc.record<Row>({
    id: fc.uuid(),
    video: fc.nat(2),
    frame: fc.oneof(fc.nat(3), u32),
    class: u16,
    state: fc.nat(2),
    source: fc.nat(3),
    flags: fc.nat(7),
    confidence: u16,
    box: fc.array(fc.float({ noNaN: true }), { minLength: 4, maxLength: 4 }),
    revision: u32,
    track: u32,
  }),
  { selector: ({ id }) => id, maxLength: 40 },
);

function block(rows: readonly Row[]): Uint8Array {
  const { bytes, columns } = newRowsBlock(rows.length);
  for (const [at, row] of rows.entries()) {
    columns.id.set(idBytes(row.id), at * ID_BYTES);
    columns.box.set(row.box, at * 4);
    const { id: _, box: __, ...numbers } = row;
    for (const [name, value] of Object.entries(numbers)) {
      columns[name as keyof RowColumns][at] = value;
    }
  }
  return bytes;
}

/** An answer of blocks of so many rows at most. */
function answerOf(
  rows: readonly Row[],
  { header = HEADER, deleted = [] as readonly string[], blockRows = 16 } = {},
): Uint8Array {
  const parts = [headerBytes({ ...header, rows: rows.length })];
  for (let from = 0; from < rows.length; from += blockRows) {
    parts.push(new Uint8Array(block(rows.slice(from, from + blockRows))));
  }
  if (deleted.length > 0) {
    parts.push(deletedBlock(Uint8Array.from(deleted.flatMap((id) => [...idBytes(id)]))));
  }
  return new Uint8Array(Buffer.concat([...parts, endBlock(rows.length)]));
}

const rowsOf = ({ columns, rows }: ColumnTable): Row[] =>
  Array.from({ length: rows }, (_, at) => {
    const { id, box, ...numbers } = columns;
    const others = Object.entries(numbers).map(([name, column]) => [name, column[at]]);
    const row = { id: idText(id, at), box: [...box.subarray(at * 4, at * 4 + 4)] };
    return { ...row, ...Object.fromEntries(others) };
  });

const sorted = (rows: readonly Row[]): Row[] =>
  rows.toSorted(
    (left, right) =>
      left.video - right.video || left.frame - right.frame || (left.id < right.id ? -1 : 1),
  );

/** Bytes in chunks of the lengths, whose last is of what is left. */
function* cut(bytes: Uint8Array, lengths: readonly number[]): Generator<Uint8Array> {
  let from = 0;
  for (const length of lengths) {
    yield bytes.subarray(from, from + length);
    from += length;
  }
  yield bytes.subarray(from);
}

describe("columns of annotations", () => {
  it("are read as they were written, in whatever chunks they come", async () => {
    await fc.assert(
      fc.asyncProperty(
        Rows,
        fc.array(fc.uuid(), { maxLength: 3 }),
        fc.array(fc.nat(200), { maxLength: 60 }),
        fc.integer({ min: 1, max: 50 }),
        async (rows, deleted, lengths, blockRows) => {
          const bytes = answerOf(rows, { deleted, blockRows });
          const whole = await readColumns(bytes);
          expect(whole.header).toEqual({ ...HEADER, rows: rows.length });
          expect(rowsOf(whole)).toEqual(rows);
          const gone = deleted.map((_, index) => idText(whole.deleted, index));
          expect(gone).toEqual(deleted);
          expect(await readColumns(cut(bytes, lengths))).toEqual(whole);
          const stream = new ReadableStream<Uint8Array>({
            start: (controller) => {
              for (const chunk of cut(bytes, lengths)) controller.enqueue(chunk);
              controller.close();
            },
          });
          expect(await readColumns(stream)).toEqual(whole);
        },
      ),
    );
  });

  it("lie aligned in the answer, so that arrays can be laid over its bytes", () => {
    fc.assert(
      fc.property(fc.nat(100), fc.string(), (rows, filename) => {
        const header = { ...HEADER, videos: [{ ...video(1), filename }] };
        expect(headerBytes(header).length % 8).toBe(0);
        expect(newRowsBlock(rows).bytes.length % 8).toBe(0);
      }),
    );
  });

  it("are refused where they break off, whatever is missing", async () => {
    await fc.assert(
      fc.asyncProperty(Rows, fc.nat(), async (rows, where) => {
        const bytes = answerOf(rows);
        const broken = bytes.subarray(0, where % bytes.length);
        await expect(readColumns(broken)).rejects.toThrow(/broke off/);
      }),
    );
    const none = await readColumns(answerOf([]));
    expect([none.rows, none.columns.id.length, none.deleted.length]).toEqual([0, 0, 0]);
  });

  it("are refused where the bytes are of something else", async () => {
    const bytes = answerOf([]);
    const refusal = (change: (bytes: Uint8Array) => Uint8Array | undefined) => {
      const copy = bytes.slice();
      return expect(readColumns(change(copy) ?? copy)).rejects;
    };
    const parts = (...after: Uint8Array[]) =>
      new Uint8Array(Buffer.concat([headerBytes(HEADER), ...after]));
    await refusal(() => new TextEncoder().encode('{"code": "not_found"}')).toThrow(/no columns/);
    await refusal((copy) => void copy.fill(2, 8, 9)).toThrow("version 2, not 1");
    await refusal((copy) => void copy.fill(255, 12, 16)).toThrow("impossible length");
    await refusal((copy) => void copy.fill(0x7b, PROLOGUE_BYTES, 20)).toThrow("no JSON");
    await refusal(() => headerBytes({ ...HEADER, version: 2 })).toThrow("lacks a field");
    await refusal(() => parts(newRowsBlock(1).bytes.fill(9, 0, 1))).toThrow("unknown kind");
    await refusal(() => parts(endBlock(1))).toThrow("0 of 1 annotations");
    await refusal(() => parts(newRowsBlock(BLOCK_ROWS_MAX + 1).bytes)).toThrow("16385 rows");
    await refusal(() => parts(endBlock(0), endBlock(0))).toThrow("go on after their end");
    for (const [name, value] of [
      ["video", 3],
      ["state", 3],
      ["source", 4],
    ] as const) {
      const { bytes: odd, columns } = newRowsBlock(1);
      columns[name][0] = value;
      await refusal(() => parts(odd, endBlock(1))).toThrow(`unknown ${name}`);
    }
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 64 }), async (foreign) => {
        await expect(readColumns(foreign)).rejects.toThrow(ColumnsError);
      }),
    );
  });

  it("keep the order of confidences, and none as the surest", () => {
    const confidence = fc.float({ min: 0, max: 1, noNaN: true });
    fc.assert(
      fc.property(confidence, confidence, (one, other) => {
        if (one >= other) expect(confidenceCode(one)).toBeGreaterThanOrEqual(confidenceCode(other));
        const read = confidenceOf(confidenceCode(one)) ?? Number.NaN;
        expect(Math.abs(read - one)).toBeLessThan(1 / 131_000);
      }),
    );
    expect([0, 0.5, 1, null].map(confidenceCode)).toEqual([0, 32_767, 65_534, NO_CONFIDENCE]);
    expect(confidenceOf(NO_CONFIDENCE)).toBe(null);
    expect(() => idBytes("7")).toThrow("no UUID");
  });
});

describe("a difference", () => {
  const read = (rows: readonly Row[], header: Partial<ColumnsHeader> = {}, deleted?: string[]) =>
    readColumns(answerOf(rows, { header: { ...HEADER, ...header }, ...(deleted && { deleted }) }));

  it("makes of an older table the newer one", async () => {
    await fc.assert(
      fc.asyncProperty(Rows, Rows, fc.infiniteStream(fc.nat(3)), async (old, others, dice) => {
        const roll = () => dice.next().value as number;
        const known = new Set(old.map(({ id }) => id));
        const created = others.filter(({ id }) => !known.has(id));
        const fates = new Map(old.map(({ id }) => [id, roll()]));
        const deleted = old.filter(({ id }) => fates.get(id) === 0).map(({ id }) => id);
        const edited = old
          .filter(({ id }) => fates.get(id) === 1)
          .map((row) => ({ ...row, state: (row.state + 1) % 3, revision: 5 }));
        const kept = old.filter(({ id }) => (fates.get(id) ?? 0) > 1);
        const table = await read(sorted(old));
        // Blocks of a difference come in the order of edits, and may name ids that nobody had.
        const fresh = [...edited, ...created].toSorted(() => roll() - 1.5);
        const change = { after_seq: 7, edits_seq: 9, classes: [] };
        const newer = applyDifference(
          table,
          await read(fresh, change, [...deleted, fc.sample(fc.uuid(), 1)[0] ?? ""]),
        );
        const expected = sorted([...kept, ...edited, ...created]);
        expect(newer && rowsOf(newer)).toEqual(expected);
        expect(newer?.header).toEqual({
          ...HEADER,
          edits_seq: 9,
          classes: [],
          rows: expected.length,
        });
        expect(rowsOf(table)).toEqual(sorted(old));
      }),
    );
  });

  it("renumbers videos that came to the job, and drops rows of those that left it", async () => {
    await fc.assert(
      fc.asyncProperty(Rows, Rows, async (old, others) => {
        const known = new Set(old.map(({ id }) => id));
        const created = others.filter(({ id, video }) => !known.has(id) && video < 2);
        const table = await read(sorted(old), { videos: [video(1), video(3), video(4)] });
        // The first video goes, and one comes before the others.
        const change = { after_seq: 7, edits_seq: 8, videos: [video(2), video(3), video(4)] };
        const newer = applyDifference(table, await read(created, change));
        const kept = old.filter((row) => row.video > 0);
        expect(newer && rowsOf(newer)).toEqual(sorted([...kept, ...created]));
        const fewer = { after_seq: 8, edits_seq: 9, videos: [video(4)] };
        const last = newer && applyDifference(newer, await read([], fewer));
        const left = kept.filter((row) => row.video === 2).map((row) => ({ ...row, video: 0 }));
        expect(last && rowsOf(last)).toEqual(sorted(left));
      }),
    );
  });

  it("is refused where it does not continue the table", async () => {
    const table = await read([]);
    const continued = async (header: Partial<ColumnsHeader>) =>
      applyDifference(table, await read([], { after_seq: 7, ...header }));
    expect(await continued({})).not.toBe(null);
    expect(await continued({ after_seq: 3 })).not.toBe(null);
    expect(await continued({ after_seq: 8, edits_seq: 9 })).toBe(null);
    expect(await continued({ after_seq: 3, edits_seq: 6 })).toBe(null);
    expect(await continued({ after_seq: null })).toBe(null);
    expect(await continued({ threshold: 0.4 })).toBe(null);
    expect(await continued({ job_id: "another" })).toBe(null);
  });
});
