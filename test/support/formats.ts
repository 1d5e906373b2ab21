// Answers of the read API read back by programs that know nothing of how they were written: DuckDB,
// apache-arrow and a small CSV reader. Each gives rows in the form of the JSON answer.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { DataType, tableFromIPC } from "apache-arrow";
import { iso } from "../../shared/time.ts";

/** A cell as JSON holds it. */
export type Cell = string | number | boolean | null;
export type Row = Record<string, Cell>;

/** What a reader found: the rows, and each column's type in the reader's own words. */
export interface Table {
  columns: Record<string, string>;
  rows: Row[];
  /** Row groups or record batches; absent where the format has none. */
  parts?: number;
}

export interface Duck {
  /** Writes bytes to a file of their own; returns its path. */
  file(bytes: Uint8Array): string;
  query(sql: string): Promise<Record<string, unknown>[]>;
  /** Opens Parquet bytes and reads all of them. */
  parquet(bytes: Uint8Array): Promise<Table>;
  close(): void;
}

/** A DuckDB with a folder for the files it opens. */
export async function openDuck(): Promise<Duck> {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  const folder = mkdtempSync(join(tmpdir(), "vantage-duck-"));
  let files = 0;
  const file = (bytes: Uint8Array) => {
    const path = join(folder, `${files++}.parquet`);
    writeFileSync(path, bytes);
    return path;
  };
  const query = async (sql: string) =>
    (await connection.runAndReadAll(sql)).getRowObjectsJS() as Record<string, unknown>[];
  return {
    file,
    query,
    parquet: async (bytes) => {
      const path = file(bytes);
      const described = await query(`DESCRIBE SELECT * FROM read_parquet('${path}')`);
      const columns = Object.fromEntries(
        described.map((column) => [String(column.column_name), String(column.column_type)]),
      );
      // The reader itself makes an instant's text: no arithmetic of ours is in between.
      const cells = Object.entries(columns).map(([name, type]) =>
        type.startsWith("TIMESTAMP")
          ? `strftime(make_timestamp(epoch_us("${name}")), '%Y-%m-%dT%H:%M:%S.%gZ') AS "${name}"`
          : `"${name}"`,
      );
      const found = await query(`SELECT ${cells.join()} FROM read_parquet('${path}')`);
      const [meta] = await query(
        `SELECT count(DISTINCT row_group_id) AS parts FROM parquet_metadata('${path}')`,
      );
      const rows = found.map((row) =>
        Object.fromEntries(Object.entries(row).map(([name, cell]) => [name, plain(cell)])),
      );
      return { columns, rows, parts: Number(meta?.parts) };
    },
    close: () => {
      connection.closeSync();
      instance.closeSync();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const plain = (cell: unknown): Cell => (typeof cell === "bigint" ? Number(cell) : (cell as Cell));

/** Decodes an Arrow IPC stream. */
export function readArrow(bytes: Uint8Array): Table {
  const table = tableFromIPC(bytes);
  const columns = table.schema.fields.map((field, index) => {
    const column = table.getChildAt(index);
    const cell = (row: number): Cell => {
      const value: unknown = column?.get(row);
      if (value === null) return null;
      return DataType.isTimestamp(field.type) ? iso(Number(value)) : plain(value);
    };
    return { name: field.name, type: String(field.type), cell };
  });
  return {
    columns: Object.fromEntries(columns.map(({ name, type }) => [name, type])),
    rows: Array.from({ length: table.numRows }, (_, row) =>
      Object.fromEntries(columns.map(({ name, cell }) => [name, cell(row)])),
    ),
    parts: table.batches.filter(({ numRows }) => numRows > 0).length,
  };
}

/** Reads CSV as RFC 4180 has it; the format does not say which columns hold numbers and flags. */
export function readCsv(text: string, kinds: Record<string, "number" | "flag">): Table {
  const records: string[][] = [];
  let [record, field, quoted] = [[] as string[], "", false];
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (quoted) {
      if (character !== '"') field += character;
      else if (text[at + 1] === '"') {
        field += '"';
        at++;
      } else quoted = false;
    } else if (character === '"') quoted = true;
    else if (character === "," || character === "\n") {
      record.push(field);
      field = "";
      if (character === ",") continue;
      records.push(record);
      record = [];
    } else field += character;
  }
  if (field !== "" || record.length > 0 || quoted) throw new Error("the last line is not ended");
  const [names = [], ...lines] = records;
  const rows = lines.map((cells) => {
    if (cells.length !== names.length) throw new Error(`${cells.length} cells: ${cells.join()}`);
    return Object.fromEntries(
      names.map((name, index) => [name, csvCell(cells[index] ?? "", kinds[name])]),
    );
  });
  return { columns: Object.fromEntries(names.map((name) => [name, "text"])), rows };
}

function csvCell(text: string, kind: "number" | "flag" | undefined): Cell {
  if (text === "") return null;
  if (kind === "number") return Number(text);
  if (kind === "flag" && (text === "true" || text === "false")) return text === "true";
  return text;
}

/** Reads one JSON value a line. */
export function readNdjson(text: string): Row[] {
  if (text !== "" && !text.endsWith("\n")) throw new Error("the last line is not ended");
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Row);
}
