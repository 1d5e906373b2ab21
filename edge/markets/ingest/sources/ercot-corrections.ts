// ERCOT's price corrections: announced within two business days in reports of their own, and never
// applied to the price reports. They are few, and an extra: where they cannot be read, the prices
// are committed as first posted and a finding says so.

import { Failure } from "../../../../shared/errors.ts";
import type { Range } from "../../store/rows.ts";
import { type Finding, finding } from "../gate.ts";
import { type ErcotApi, type FetchContext, fetchRows } from "./ercot-api.ts";
import { instantsOfWall } from "./ercot-hours.ts";
import { type ErcotRecord, numberOf, type Product, textOf } from "./ercot-products.ts";
import type { ErcotRows, InstantOf, PriceRow } from "./ercot-rows.ts";

interface Correction {
  key: string;
  value: number;
  announcedAt: number;
}

const PRICE_OFF_MAX = 0.005;

/** The same prices with what was corrected since, the latest correction of each. */
export async function fetchCorrections(
  api: ErcotApi,
  context: FetchContext,
  query: { product: Product; window: Range; instantOf: InstantOf; priced: ErcotRows<PriceRow> },
): Promise<ErcotRows<PriceRow>> {
  const { priced, instantOf } = query;
  if (priced.rows.length === 0) return priced;
  try {
    const { records, leftOut } = await fetchRows(api, context, query);
    const latest = new Map<string, Correction>();
    for (const one of leftOut.rows(records, (record) => readCorrection(record, instantOf))) {
      const known = latest.get(one.key);
      if (!known || known.announcedAt <= one.announcedAt) latest.set(one.key, one);
    }
    // A correction that cannot be read changes no price; the prices are complete without it.
    const unreadRows = leftOut.findings().map(({ count, where }) => unread(where, count));
    return apply({ ...priced, findings: [...(priced.findings ?? []), ...unreadRows] }, latest);
  } catch (thrown) {
    const isOurs = thrown instanceof Failure && UNREADABLE.has(thrown.code);
    if (!isOurs) throw thrown;
    return { ...priced, findings: [...(priced.findings ?? []), unread(thrown.message)] };
  }
}

/** Failures of this extra report that must not fail the prices. */
const UNREADABLE: ReadonlySet<string> = new Set(["upstream_schema_drift", "upstream_rejected"]);

const unread = (reason: string, count = 1): Finding =>
  finding("warning", "corrections_unread", count, reason);

function readCorrection(record: ErcotRecord, instantOf: InstantOf): Correction {
  const point = textOf(
    record,
    "settlementPointName" in record ? "settlementPointName" : "settlementPoint",
  );
  // A load zone comes a second time as an energy-weighted price, which is not ours.
  const type = record.settlementPointType ?? "";
  const announced = instantsOfWall(textOf(record, "priceCorrectionTime").replace(" ", "T"));
  return {
    key: `${instantOf(record)} ${point}${type === "LZEW" ? " LZEW" : ""}`,
    value: numberOf(record, "SPPCorrected"),
    announcedAt: announced.at(-1) ?? 0,
  };
}

function apply(
  priced: ErcotRows<PriceRow>,
  latest: ReadonlyMap<string, Correction>,
): ErcotRows<PriceRow> {
  let { publishedAt } = priced;
  const rows = priced.rows.map((row) => {
    const correction = latest.get(`${row.datetime} ${row.point}`);
    if (!correction || Math.abs(correction.value - row.value) < PRICE_OFF_MAX) return row;
    if (publishedAt !== undefined) publishedAt = Math.max(publishedAt, correction.announcedAt);
    return { ...row, value: correction.value };
  });
  return { ...priced, rows, ...(publishedAt === undefined ? {} : { publishedAt }) };
}
