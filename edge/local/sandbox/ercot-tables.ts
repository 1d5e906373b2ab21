// The sandbox's ERCOT reports as tables: labels of hour and interval, flags of the repeated hour,
// and the two spellings of the same rows, in the API and in a document's CSV.

import { DAY, HOUR } from "../../../shared/time.ts";
import {
  instantsOfWall,
  QUARTER,
  wallHour,
  wallOfInstant,
} from "../../markets/ingest/sources/ercot-hours.ts";
import {
  type Cell,
  DAY_AHEAD_CORRECTIONS,
  DAY_AHEAD_PRICES,
  type Product,
  REALTIME_CORRECTIONS,
  REALTIME_PRICES,
  SYSTEM_LOAD,
} from "../../markets/ingest/sources/ercot-products.ts";
import type { OperatingDay } from "../../markets/store/operating-day.ts";
import {
  correctionOf,
  dayAheadPostedAt,
  dayAheadPrices,
  energyWeighted,
  finalLoad,
  isRepaired,
  loadPostedAt,
  POINTS,
  realtimePostedAt,
  realtimePrices,
  shownLoad,
} from "./ercot-market.ts";

/** Query parameters of a request for rows. */
export type Filters = Readonly<Record<string, string | undefined>>;

/** One report of the sandbox. */
export interface Report {
  product: Product;
  /** The rows of an operating day that are out at `now`, in the API's form. */
  rows: (day: OperatingDay, now: number, filters: Filters) => Cell[][];
  /** The documents of an operating day, posted or not yet. */
  documents: (day: OperatingDay) => PostedDocument[];
}

/** A document of a report. */
export interface PostedDocument {
  id: number;
  name: string;
  postedAt: number;
  /** As the document lists show it: in the repeated hour it is an hour early. */
  shownPostedAt: number;
  rows: () => Cell[][];
}

/** How a report labels the hour that starts at an instant. */
export interface HourLabel {
  hour: number;
  repeated: boolean;
}

/** The labels of a day's hours, in order. */
export function hoursOf(day: OperatingDay): (HourLabel & { start: number })[] {
  const count = (day.to - day.from) / HOUR;
  return Array.from({ length: count }, (_, index) => ({
    start: day.from + index * HOUR,
    hour: wallHour(day, index) + 1,
    repeated: index > 0 && wallHour(day, index) === wallHour(day, index - 1),
  }));
}

const ending = (hour: number) => `${String(hour).padStart(2, "0")}:00`;

/** The rows of one quarter; load zones come a second time, energy weighted. */
function quarterRows(day: OperatingDay, label: HourLabel, start: number, type?: string): Cell[][] {
  const interval = Math.floor((start % HOUR) / QUARTER) + 1;
  const prices = realtimePrices(start);
  return POINTS.flatMap(({ name, type: own }, index): Cell[][] => {
    const price = prices[index] ?? 0;
    const row = (shownType: string, value: number): Cell[][] =>
      !type || type === shownType
        ? [[day.key, label.hour, interval, name, shownType, value, label.repeated]]
        : [];
    if (own !== "LZ") return row(own, price);
    return [...row("LZEW", energyWeighted(price, start)), ...row("LZ", price)];
  });
}

const quartersOf = (day: OperatingDay) =>
  hoursOf(day).flatMap(({ start, ...label }) =>
    [0, 1, 2, 3].map((quarter) => ({ label, start: start + quarter * QUARTER })),
  );

const ID_REALTIME = 1_000_000_000;
const ID_DAY_AHEAD = 1_100_000_000;
const ID_LOAD = 1_200_000_000;

const realtime: Report = {
  product: REALTIME_PRICES,
  rows: (day, now, { settlementPointType, settlementPoint }) =>
    quartersOf(day)
      .filter(({ start }) => realtimePostedAt(start) <= now)
      .flatMap(({ label, start }) => quarterRows(day, label, start, settlementPointType))
      .filter((row) => !settlementPoint || row[3] === settlementPoint),
  documents: (day) =>
    quartersOf(day).flatMap(({ label, start }): PostedDocument[] => {
      const end = start + QUARTER;
      const stamp = wallOfInstant(end).replaceAll(/[-:]/g, "").replace("T", "_");
      // The second of two documents with one stamp is marked.
      const mark = (instantsOfWall(wallOfInstant(end))[1] ?? NaN) === end ? "_xhr" : "";
      const id = ID_REALTIME + (start / QUARTER) * 10;
      const postedAt = realtimePostedAt(start);
      const shownPostedAt = postedAt - (label.repeated ? HOUR : 0);
      const name = (retry: string) => `SPPHLZNP6905${retry}_${stamp.slice(0, 13)}${mark}_csv`;
      const rows = () => quarterRows(day, label, start);
      const first = { id, name: name(""), postedAt, shownPostedAt };
      if (!isRepaired(start)) return [{ ...first, rows }];
      const again = { id: id + 1, name: name("_retry"), rows };
      const later = { postedAt: postedAt + 180_000, shownPostedAt: shownPostedAt + 180_000 };
      return [
        { ...first, rows: () => rows().slice(0, 9) },
        { ...again, ...later },
      ];
    }),
};

const dayAheadRows = (day: OperatingDay): Cell[][] =>
  hoursOf(day).flatMap(({ start, hour, repeated }) => {
    const prices = dayAheadPrices(start);
    return POINTS.map(({ name }, index) => [
      ...[day.key, ending(hour), name, prices[index] ?? 0, repeated],
    ]);
  });

const dayAhead: Report = {
  product: DAY_AHEAD_PRICES,
  rows: (day, now, { settlementPoint }) =>
    dayAheadPostedAt(day) > now
      ? []
      : dayAheadRows(day).filter((row) => !settlementPoint || row[2] === settlementPoint),
  documents: (day) => {
    const postedAt = dayAheadPostedAt(day);
    const id = ID_DAY_AHEAD + Math.floor(day.from / DAY) * 10;
    const rows = () => dayAheadRows(day);
    return [{ id, name: "DAMSPNP4190_csv", postedAt, shownPostedAt: postedAt, rows }];
  },
};

const loadRows = (day: OperatingDay): Cell[][] =>
  hoursOf(day).map(({ start, hour, repeated }) => {
    const { zones, total } = finalLoad(start);
    return [day.key, ending(hour), ...zones, total, repeated];
  });

const load: Report = {
  product: SYSTEM_LOAD,
  rows: (day, now) => (loadPostedAt(day) > now ? [] : loadRows(day)),
  documents: (day) => {
    const postedAt = loadPostedAt(day);
    const id = ID_LOAD + Math.floor(day.from / DAY) * 10;
    const rows = () => loadRows(day);
    return [{ id, name: "ACTUALSYSLOADWZNP6345_csv", postedAt, shownPostedAt: postedAt, rows }];
  },
};

const realtimeCorrections: Report = {
  product: REALTIME_CORRECTIONS,
  rows: (day, now) =>
    quartersOf(day).flatMap(({ label, start }) => {
      const prices = realtimePrices(start);
      return POINTS.flatMap(({ name, type }, index): Cell[][] => {
        const price = prices[index] ?? 0;
        const found = correctionOf("realtime", day, { start, price, now });
        if (!found) return [];
        const interval = Math.floor((start % HOUR) / QUARTER) + 1;
        const labels = [day.key, label.hour, interval, name, type];
        return [[...labels, price, found.corrected, wallOfInstant(found.at), label.repeated]];
      });
    }),
  documents: () => [],
};

const dayAheadCorrections: Report = {
  product: DAY_AHEAD_CORRECTIONS,
  rows: (day, now) =>
    hoursOf(day).flatMap(({ start, hour, repeated }) => {
      const prices = dayAheadPrices(start);
      return POINTS.flatMap(({ name }, index): Cell[][] => {
        const price = prices[index] ?? 0;
        const found = correctionOf("day_ahead", day, { start, price, now });
        if (!found) return [];
        const labels = [day.key, ending(hour), name];
        return [[...labels, price, found.corrected, wallOfInstant(found.at), repeated]];
      });
    }),
  documents: () => [],
};

/** Every report that is served. */
export const REPORTS: readonly Report[] = [
  ...[realtime, dayAhead, load],
  ...[realtimeCorrections, dayAheadCorrections],
];

/** A document's CSV: its own header, US dates, Y and N, and the leading space of its prices. */
export function csvText({ columns }: Product, rows: readonly (readonly Cell[])[]): string {
  const names = Object.keys(columns);
  const lines = rows.map((row) =>
    row.map((cell, index) => spelled(names[index] ?? "", cell)).join(","),
  );
  return `${[Object.values(columns).join(","), ...lines].join("\n")}\n`;
}

function spelled(name: string, cell: Cell): string {
  if (typeof cell === "boolean") return cell ? "Y" : "N";
  if (/^(deliveryDate|operatingDay)$/.test(name)) {
    const [year, month, day] = String(cell).split("-");
    return `${month}/${day}/${year}`;
  }
  if (name === "settlementPointPrice") return ` ${cell}`;
  return typeof cell === "number" && name !== "deliveryHour" && name !== "deliveryInterval"
    ? cell.toFixed(2)
    : String(cell);
}

/** The display page of a day's load at `now`: an hour is shown 20 minutes after it. */
export function loadPage(day: OperatingDay, now: number): string {
  const shown = hoursOf(day).filter(({ start }) => start + HOUR + HOUR / 3 <= now);
  const us = spelled("operatingDay", day.key);
  const rows = shown.map(({ start, hour, repeated }) => {
    const { zones, total } = shownLoad(start);
    const label = `${ending(hour).replace(":", "")}${repeated ? "*" : ""}`;
    const cells = [us, label, ...[...zones, total].map((value) => value.toFixed(2))];
    const text = cells.map((cell) => `<td class="labelClassCenter">${cell}</td>`).join("");
    return `  <tr>${text}</tr>`;
  });
  const { operatingDay: _, hourEnding: __, DSTFlag: ___, ...zoneTitles } = SYSTEM_LOAD.columns;
  const titles = ["Oper Day", "Hour Ending", ...Object.values(zoneTitles)];
  const head = titles.map((title) => `<th class="headerValueClass">${title}</th>`).join("");
  return [
    "<html><head><title>Actual Loads of Weather Zones</title></head><body>",
    `<div class="schedTime">Last Updated: ${wallOfInstant(now).replace("T", " ").slice(0, 16)}</div>`,
    '<table class="tableStyle"><tbody>',
    `  <tr>${head}</tr>`,
    ...rows,
    "</tbody></table></body></html>",
  ].join("\n");
}
