// ERCOT's reports: their names in the public API, its archive and the keyless document lists, and
// their columns in each. Records of every form are the same here: fields by their API names.
//
// Facts it relies on: API rows are positional and `fields` names the positions; CSV headers differ
// from the API's names, cells may have spaces around them, and flags are Y and N.

import { parse } from "csv-parse/browser/esm/sync";
import { Failure } from "../../../../shared/errors.ts";
import { driftFailure } from "./drift.ts";
import { decimalOf, type LeftOut } from "./left-out.ts";

/** A report: its names in the API, the archive and the document lists, and its columns. */
export interface Product {
  /** In the archive's path. */
  emil: string;
  /** The row endpoint, below the API's base. */
  path: string;
  /** The report's number in the keyless document list. */
  reportTypeId: number;
  /** What the row endpoint's day filters begin with: `deliveryDate` for `deliveryDateFrom`. */
  dayField: string;
  /** API name → CSV name, in the API's order. */
  columns: Readonly<Record<string, string>>;
}

/** A row of a report by API names; texts are trimmed, flags are booleans. */
export type Cell = string | number | boolean | null;
/** A row of a report, by API names. */
export type ErcotRecord = Readonly<Record<string, Cell>>;

/** 15-minute prices of the settlement points. */
export const REALTIME_PRICES: Product = {
  emil: "np6-905-cd",
  path: "np6-905-cd/spp_node_zone_hub",
  reportTypeId: 12301,
  dayField: "deliveryDate",
  columns: {
    deliveryDate: "DeliveryDate",
    deliveryHour: "DeliveryHour",
    deliveryInterval: "DeliveryInterval",
    settlementPoint: "SettlementPointName",
    settlementPointType: "SettlementPointType",
    settlementPointPrice: "SettlementPointPrice",
    DSTFlag: "DSTFlag",
  },
};

/** Hourly day-ahead prices of the settlement points. */
export const DAY_AHEAD_PRICES: Product = {
  emil: "np4-190-cd",
  path: "np4-190-cd/dam_stlmnt_pnt_prices",
  reportTypeId: 12331,
  dayField: "deliveryDate",
  columns: {
    deliveryDate: "DeliveryDate",
    hourEnding: "HourEnding",
    settlementPoint: "SettlementPoint",
    settlementPointPrice: "SettlementPointPrice",
    DSTFlag: "DSTFlag",
  },
};

/** Hourly load by weather zone. */
export const SYSTEM_LOAD: Product = {
  emil: "np6-345-cd",
  path: "np6-345-cd/act_sys_load_by_wzn",
  reportTypeId: 13101,
  dayField: "operatingDay",
  columns: {
    operatingDay: "OperDay",
    hourEnding: "HourEnding",
    coast: "COAST",
    east: "EAST",
    farWest: "FAR_WEST",
    north: "NORTH",
    northC: "NORTH_C",
    southern: "SOUTHERN",
    southC: "SOUTH_C",
    west: "WEST",
    total: "TOTAL",
    DSTFlag: "DSTFlag",
  },
};

/**
 * Price corrections, announced within two business days. The price reports above keep what was
 * first posted.
 */
export const REALTIME_CORRECTIONS: Product = {
  emil: "np4-197-m",
  path: "np4-197-m/rtm_price_corrections_spp",
  reportTypeId: 13045,
  dayField: "deliveryDate",
  columns: {
    deliveryDate: "DeliveryDate",
    deliveryHour: "DeliveryHour",
    deliveryInterval: "DeliveryInterval",
    settlementPointName: "SettlementPointName",
    settlementPointType: "SettlementPointType",
    SPPOriginal: "SPPOriginal",
    SPPCorrected: "SPPCorrected",
    priceCorrectionTime: "PriceCorrectionTime",
    DSTFlag: "DSTFlag",
  },
};

export const DAY_AHEAD_CORRECTIONS: Product = {
  emil: "np4-196-m",
  path: "np4-196-m/dam_price_corrections_spp",
  reportTypeId: 13044,
  dayField: "deliveryDate",
  columns: {
    deliveryDate: "DeliveryDate",
    hourEnding: "HourEnding",
    settlementPoint: "SettlementPoint",
    SPPOriginal: "SPPOriginal",
    SPPCorrected: "SPPCorrected",
    priceCorrectionTime: "PriceCorrectionTime",
    DSTFlag: "DSTFlag",
  },
};

/** The weather zones of the load reports; their sum is the total. */
export const LOAD_ZONES = Object.keys(SYSTEM_LOAD.columns).slice(2, -2);

/** The failure for a format that changed. */
export const drift = (detail: string, arrived?: unknown): Failure =>
  driftFailure("ERCOT", detail, arrived);

/** Fails by name when a product's columns are not exactly the ones expected. */
export function assertColumns(sent: readonly string[], expected: readonly string[]): void {
  const missing = expected.filter((name) => !sent.includes(name)).map((name) => `\`${name}\``);
  const added = sent
    .filter((name) => !expected.includes(name))
    .map((name) => `\`${name.slice(0, 40)}\``);
  const parts = [
    ...(missing.length > 0 ? [`missing ${missing.join(" ")}`] : []),
    ...(added.length > 0 ? [`new ${added.slice(0, 5).join(" ")}`] : []),
  ];
  if (parts.length > 0) throw drift(parts.join("; "), `columns ${sent.join(", ")}`);
  if (sent.length !== expected.length) throw drift("a column comes twice");
}

/** Which records are wanted, and who hears of those that cannot be read. */
export interface RecordReading {
  kept: (record: ErcotRecord) => boolean;
  leftOut: LeftOut;
}

/** Positional rows as records, by the names that came along with them; those that are wanted. */
export const recordsOfRows = (
  names: readonly string[],
  rows: readonly (readonly Cell[])[],
  { kept, leftOut }: RecordReading,
): ErcotRecord[] =>
  leftOut.rows(
    rows,
    (row) => {
      if (row.length !== names.length) {
        throw drift(`a row has ${row.length} cells for ${names.length} fields`);
      }
      const cells = names.map((name, index) => [name, trimmed(row[index] ?? null)]);
      const record = Object.fromEntries(cells) as ErcotRecord;
      if (!kept(record)) return null;
      // Only documents have flags as letters.
      return "DSTFlag" in record ? { ...record, DSTFlag: flagOf(record) } : record;
    },
    // They are counted where their cells are read.
    { isCounted: false },
  );

const trimmed = (cell: Cell): Cell => (typeof cell === "string" ? cell.trim() : cell);

/**
 * A document's CSV as records. Fails with `upstream_truncated` where it is empty, or ends in its
 * middle.
 */
export function recordsOfCsv(
  { columns }: Pick<Product, "columns">,
  text: string,
  reading: RecordReading,
): ErcotRecord[] {
  let table: string[][];
  try {
    table = parse(text, {
      bom: true,
      trim: true,
      skip_empty_lines: true,
      relax_column_count: true,
    });
  } catch {
    throw new Failure("upstream_truncated", "ERCOT sent a CSV with broken rows");
  }
  const [header, ...rows] = table;
  if (!header) throw new Failure("upstream_truncated", "ERCOT sent an empty document");
  assertColumns(header, Object.values(columns));
  if ((rows.at(-1)?.length ?? header.length) < header.length)
    throw new Failure("upstream_truncated", "ERCOT sent a CSV that ends within a row");
  const names = header.map((sent) => {
    const known = Object.entries(columns).find(([, name]) => name === sent);
    return known?.[0] ?? sent;
  });
  return recordsOfRows(names, rows, reading);
}

/** A text cell; fails by the field's name. */
export function textOf(record: ErcotRecord, field: string): string {
  const cell = record[field];
  if (typeof cell === "string" && cell !== "") return cell;
  throw unexpected(field, record);
}

/** A numeric cell: a number, or its decimal digits. −0 and 0 are one value. */
export function numberOf(record: ErcotRecord, field: string): number {
  const cell = record[field];
  const value = typeof cell === "string" ? decimalOf(cell) : cell;
  if (typeof value === "number" && Number.isFinite(value)) return value + 0;
  throw unexpected(field, record);
}

/** The flag of the repeated hour's second pass: true or `Y`. */
export function flagOf(record: ErcotRecord): boolean {
  const cell = record.DSTFlag;
  if (cell === true || cell === "Y") return true;
  if (cell === false || cell === "N") return false;
  throw unexpected("DSTFlag", record);
}

/** A record's labels, for the operator to look it up. */
export const labelsOf = (record: ErcotRecord): string =>
  [record.deliveryDate ?? record.operatingDay, record.deliveryHour ?? record.hourEnding]
    .concat(record.deliveryInterval ?? [], record.settlementPoint ?? [])
    .join(" ")
    .slice(0, 60);

function unexpected(field: string, record: ErcotRecord): Failure {
  const cell = record[field];
  const shown = cell === undefined ? "missing" : JSON.stringify(cell).slice(0, 40);
  return drift(`\`${field}\` is ${shown} in the row of ${labelsOf(record)}`, record);
}
