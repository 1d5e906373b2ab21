// ERCOT's price corrections: announced within two business days in reports of their own, and never
// applied to the price reports. They are few, and an extra: where they cannot be read, the prices
// are committed as first posted and the run says so.

import { Failure } from "../../../../shared/errors.ts";
import type { Range } from "../../store/plan.ts";
import { type Finding, finding } from "../gate.ts";
import { type Asking, type ErcotApi, fetchRows } from "./ercot-api.ts";
import { instantsOfWall } from "./ercot-hours.ts";
import { type ErcotRecord, numberOf, type Product, textOf } from "./ercot-products.ts";
import type { ErcotRows, Place, PriceRow } from "./ercot-rows.ts";

interface Correction {
  key: string;
  value: number;
  announcedAt: number;
}

const PRICE_OFF_MAX = 0.005;

/** The same prices with what was corrected since, the latest correction of each. */
export async function fetchCorrections(
  api: ErcotApi,
  asking: Asking,
  query: { product: Product; window: Range; place: Place; priced: ErcotRows<PriceRow> },
): Promise<ErcotRows<PriceRow>> {
  const { priced, place } = query;
  if (priced.rows.length === 0) return priced;
  try {
    const { records } = await fetchRows(api, asking, query);
    const latest = new Map<string, Correction>();
    for (const record of records) {
      const one = readCorrection(record, place);
      const known = latest.get(one.key);
      if (!known || known.announcedAt <= one.announcedAt) latest.set(one.key, one);
    }
    return apply(priced, latest);
  } catch (thrown) {
    const isOurs = thrown instanceof Failure && UNREADABLE.has(thrown.code);
    if (!isOurs) throw thrown;
    return { ...priced, findings: [...(priced.findings ?? []), unread(thrown.message)] };
  }
}

/** What a report that nobody depends on may do without failing the prices. */
const UNREADABLE: ReadonlySet<string> = new Set(["upstream_schema_drift", "upstream_rejected"]);

const unread = (reason: string): Finding => finding("warning", "corrections_unread", 1, reason);

function readCorrection(record: ErcotRecord, place: Place): Correction {
  const point = textOf(
    record,
    "settlementPointName" in record ? "settlementPointName" : "settlementPoint",
  );
  // A load zone comes a second time as an energy-weighted price, which is not ours.
  const type = record.settlementPointType ?? "";
  const announced = instantsOfWall(textOf(record, "priceCorrectionTime").replace(" ", "T"));
  return {
    key: `${place(record)} ${point}${type === "LZEW" ? " LZEW" : ""}`,
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
