// ERCOT's labels land on the right UTC instants, on days of 23, 24 and 25 hours; what names no
// interval is refused.

import { describe, expect, it } from "vitest";
import {
  dayOfLabel,
  daysOf,
  endLabelStarts,
  hourOfLabel,
  hourStart,
  instantsInOrder,
  instantsOfWall,
  intervalStart,
  ordinalStart,
  QUARTER,
  wallOfInstant,
} from "../../edge/markets/ingest/sources/ercot-hours.ts";
import { HOUR, iso, MINUTE } from "../../shared/time.ts";
import { hasRecordings, recording } from "../support/recordings.ts";

const at = (text: string) => Date.parse(text);
const refused = expect.objectContaining({ code: "upstream_schema_drift" });

interface Vector {
  he: string;
  dst_flag: string;
  ordinal_he: number;
  start: string;
  end: string;
}
interface DayVector {
  day: string;
  start: string;
  end: string;
  hours: number;
  rt_intervals: number;
}

describe.skipIf(!hasRecordings("dst_vectors.json"))("the vectors of both clock changes", () => {
  // The body of a skipped suite runs too, to list its tests.
  if (!hasRecordings("dst_vectors.json")) return;
  const vectors = JSON.parse(recording("dst_vectors.json")) as {
    ercot_he: Record<string, Vector[]>;
    operating_days: DayVector[];
  };

  it("place every hour ending, by flag and by ordinal", () => {
    const days = Object.entries(vectors.ercot_he);
    expect(days.map(([, hours]) => hours.length)).toEqual([23, 25]);
    for (const [key, hours] of days) {
      const day = dayOfLabel(key);
      for (const { he, dst_flag, ordinal_he, start, end } of hours) {
        const begin = hourStart(day, hourOfLabel(he), dst_flag === "Y");
        expect(begin).toBe(at(start));
        expect(begin + HOUR).toBe(at(end));
        expect(ordinalStart(day, ordinal_he)).toBe(at(start));
      }
    }
  });

  it("place every 15-minute interval of every operating day, each once", () => {
    for (const { day: key, start, end, hours, rt_intervals } of vectors.operating_days) {
      const day = dayOfLabel(key);
      expect([day.from, day.to]).toEqual([at(start), at(end)]);
      const labels = Array.from({ length: 24 }, (_, index) => index + 1).flatMap((hour) =>
        [false, true].flatMap((repeated) =>
          [1, 2, 3, 4].map((interval) => ({ hour, interval, repeated })),
        ),
      );
      const starts = labels.flatMap((label) => {
        try {
          return [intervalStart(day, label)];
        } catch {
          return [];
        }
      });
      expect(starts).toHaveLength(rt_intervals);
      const expected = Array.from({ length: hours * 4 }, (_, index) => day.from + index * QUARTER);
      expect(starts.toSorted((left, right) => left - right)).toEqual(expected);
    }
  });
});

describe("hour endings", () => {
  const [spring, fall, plain] = ["2026-03-08", "11/01/2026", "2026-05-05"].map(dayOfLabel) as [
    ReturnType<typeof dayOfLabel>,
    ReturnType<typeof dayOfLabel>,
    ReturnType<typeof dayOfLabel>,
  ];

  it("skip 03 in spring and repeat 02 in fall, the second pass under the flag", () => {
    expect(iso(hourStart(spring, 2, false))).toBe("2026-03-08T07:00:00.000Z");
    expect(iso(hourStart(spring, 4, false))).toBe("2026-03-08T08:00:00.000Z");
    expect(iso(hourStart(fall, 2, false))).toBe("2026-11-01T06:00:00.000Z");
    expect(iso(hourStart(fall, 2, true))).toBe("2026-11-01T07:00:00.000Z");
    expect(iso(hourStart(fall, 24, false))).toBe("2026-11-02T05:00:00.000Z");
    expect(iso(hourStart(plain, 1, false))).toBe("2026-05-05T05:00:00.000Z");
  });

  it.each([
    ["the skipped hour", () => hourStart(spring, 3, false)],
    ["a flag on a day without a repeated hour", () => hourStart(plain, 2, true)],
    ["a flag on another hour", () => hourStart(fall, 3, true)],
    ["hour 0", () => hourStart(plain, 0, false)],
    ["hour 25", () => hourStart(plain, 25, false)],
    ["ordinal 24 in spring", () => ordinalStart(spring, 24)],
    ["ordinal 26 in fall", () => ordinalStart(fall, 26)],
    ["ordinal 0", () => ordinalStart(fall, 0)],
    ["interval 5", () => intervalStart(plain, { hour: 1, interval: 5, repeated: false })],
    ["interval 1.5", () => intervalStart(plain, { hour: 1, interval: 1.5, repeated: false })],
    ["a label of minutes", () => hourOfLabel("01:15")],
    ["a label of nothing", () => hourOfLabel("")],
    ["a label of 24 hours and one", () => hourOfLabel("25:00")],
    ["a day that is none", () => dayOfLabel("2026-02-30")],
    ["a day the other way round", () => dayOfLabel("31/12/2026")],
  ])("refuse %s", (_, label) => {
    expect(label).toThrow(refused);
  });

  it("accept every style of the same hour", () => {
    for (const label of ["01:00", "0100", "1", "01", 1]) expect(hourOfLabel(label)).toBe(1);
    for (const label of ["24:00", "2400", 24]) expect(hourOfLabel(label)).toBe(24);
  });

  it("cut a window into its operating days", () => {
    const window = { from: fall.from - HOUR, to: fall.to + HOUR };
    const keys = ["2026-10-31", "2026-11-01", "2026-11-02"];
    expect(daysOf(window).map(({ key }) => key)).toEqual(keys);
    expect(daysOf({ from: fall.from, to: fall.to })).toEqual([fall]);
  });
});

describe("labels of a quarter's end", () => {
  const labelled = (...labels: string[]) =>
    labels.map((label) => ({ timeEnding: label.slice(0, 5), repeated: label.endsWith("Y") }));
  const starts = (key: string, ...labels: string[]) =>
    endLabelStarts(dayOfLabel(key), labelled(...labels)).map((start) => iso(start).slice(5, 16));
  /** The recorded order of the fall day of 2016: the flag is of the start, the label of the end. */
  const fall = ["00:15 N", "00:30 N", "00:45 N", "01:00 N", "01:15 N", "01:30 N", "01:45 N"];

  it("jump to 03:00 in spring", () => {
    const labels = ["00:15 N", "00:30 N", "00:45 N", "01:00 N", "01:15 N", "01:30 N", "01:45 N"];
    expect(starts("2016-03-13", ...labels, "03:00 N", "03:15 N").slice(-3)).toEqual([
      "03-13T07:30",
      "03-13T07:45",
      "03-13T08:00",
    ]);
  });

  it("tell the two intervals that end at 01:00 apart by their order", () => {
    const second = ["01:00 N", "01:15 Y", "01:30 Y", "01:45 Y", "02:00 Y", "02:15 N"];
    const begins = starts("2016-11-06", ...fall, ...second);
    expect(begins[3]).toBe("11-06T05:45");
    expect(begins.slice(7)).toEqual([
      ...["11-06T06:45", "11-06T07:00", "11-06T07:15"],
      ...["11-06T07:30", "11-06T07:45", "11-06T08:00"],
    ]);
    expect(new Set(begins).size).toBe(begins.length);
  });

  it("are all placed on each kind of day, and end at 24:00", () => {
    const ends = ["22:45 N", "23:00 N", "23:15 N", "23:30 N", "23:45 N", "24:00 N"];
    expect(starts("2016-11-06", ...fall, ...ends).at(-1)).toBe("11-07T05:45");
  });

  it("are refused where they name nothing, come twice or could mean two intervals", () => {
    const day = dayOfLabel("2016-11-06");
    const startsAt = (...labels: string[]) => endLabelStarts(day, labelled(...labels));
    expect(() => startsAt("00:20 N")).toThrow(refused);
    expect(() => startsAt("00:15 Y")).toThrow(refused);
    expect(() => startsAt("00:15 N", "00:15 N")).toThrow(refused);
    expect(() => startsAt("00:15 N", "01:00 N")).toThrow(refused);
    expect(() => endLabelStarts(dayOfLabel("2016-03-13"), labelled("02:15 N"))).toThrow(refused);
  });
});

describe("wall times without an offset", () => {
  it("name one instant, none in the skipped hour, two in the repeated one", () => {
    expect(instantsOfWall("2026-09-28T13:51:11").map(iso)).toEqual(["2026-09-28T18:51:11.000Z"]);
    expect(instantsOfWall("2026-03-08T02:30:00")).toEqual([]);
    expect(instantsOfWall("2026-11-01T01:17:02.000").map(iso)).toEqual([
      "2026-11-01T06:17:02.000Z",
      "2026-11-01T07:17:02.000Z",
    ]);
    expect(() => instantsOfWall("yesterday")).toThrow(refused);
  });

  it("read back as what clocks showed, at every quarter of three days of each kind", () => {
    for (const key of ["2026-03-08", "2026-11-01", "2026-05-05"]) {
      const { from, to } = dayOfLabel(key);
      for (let instant = from; instant < to; instant += QUARTER) {
        expect(instantsOfWall(wallOfInstant(instant))).toContain(instant);
      }
    }
  });

  it("are told apart by their order: the second pass begins where clocks step back", () => {
    const { from } = dayOfLabel("2026-11-01");
    const posted = Array.from({ length: 16 }, (_, index) => from + index * QUARTER + 2 * MINUTE);
    expect(instantsInOrder(posted.map(wallOfInstant))).toEqual(posted);
    const swapped = [...posted];
    [swapped[9], swapped[10]] = [posted[9] ?? 0, (posted[9] ?? 0) - 1_000];
    expect(instantsInOrder(swapped.map(wallOfInstant))).toEqual(swapped);
  });
});
