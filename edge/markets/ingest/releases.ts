// When weekly reports come out that do not at their usual hour: in the weeks that their publisher
// announced, and in other weeks with a federal holiday by a rule. Pure.

import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";
import { operatingDay } from "../store/operating-day.ts";
import { observed, onOrAfter, weekday } from "../store/trading-days.ts";

/** When a report is expected. */
export interface ReleaseTime {
  /** Epoch milliseconds. */
  at: number;
  /** By a rule; false: by the publisher's own calendar, or at the usual hour. */
  isDerived: boolean;
}

/** A release that its publisher announced for another time than usual, by the report's key. */
interface Announcement {
  /** Wall clock in New York, `2026-11-13T10:30`. */
  at: string;
  /** Where it is announced. */
  source: string;
}

interface ReleaseRule {
  /** Days from the report's Friday to the day on which it usually comes out. */
  days: number;
  announced: Readonly<Record<string, Announcement>>;
  /** The shift for a holiday on a weekday of the release's week, 1 for Monday; null: none. */
  shiftFor: (holiday: number) => Shift | null;
}

/** Days after the usual one, and the hour of the day, milliseconds of New York's clock. */
interface Shift {
  days: number;
  hour: number;
}

const NEW_YORK = "America/New_York";
const USUAL_HOUR = 10 * HOUR + 30 * MINUTE;
const NOON = 12 * HOUR;
const [MONDAY, WEDNESDAY, THURSDAY, SATURDAY] = [1, 3, 4, 6];
const JUNETEENTH_FIRST = 2021;

const date = (year: number, month: number, day: number) => Date.UTC(year, month - 1, day);

/** Federal holidays as they are observed (5 U.S.C. 6103), each the 00:00Z of its day. */
export const federalHolidays = (year: number): number[] => [
  observed(date(year, 1, 1)),
  onOrAfter(MONDAY, date(year, 1, 15)),
  onOrAfter(MONDAY, date(year, 2, 15)),
  onOrAfter(MONDAY, date(year, 5, 25)),
  ...(year >= JUNETEENTH_FIRST ? [observed(date(year, 6, 19))] : []),
  observed(date(year, 7, 4)),
  onOrAfter(MONDAY, date(year, 9, 1)),
  onOrAfter(MONDAY, date(year, 10, 8)),
  observed(date(year, 11, 11)),
  onOrAfter(THURSDAY, date(year, 11, 22)),
  observed(date(year, 12, 25)),
  // New Year's Day of a Saturday is kept in the old year.
  ...(weekday(date(year + 1, 1, 1)) === SATURDAY ? [date(year, 12, 31)] : []),
];

const STORAGE_CALENDAR = "EIA, Weekly Natural Gas Storage Report: holiday release schedule 2026";

/**
 * Weekly gas storage: Thursday at 10:30. Of a holiday on the Thursday it is out on Wednesday at
 * noon, of one on the Wednesday on Friday.
 */
export const gasStorageRelease = calendar({
  days: 6,
  announced: {
    "2026-11-06": { at: "2026-11-13T10:30", source: STORAGE_CALENDAR },
    "2026-11-20": { at: "2026-11-25T12:00", source: STORAGE_CALENDAR },
  },
  shiftFor: (holiday) => {
    if (holiday === THURSDAY) return { days: -1, hour: NOON };
    return holiday === WEDNESDAY ? { days: 1, hour: USUAL_HOUR } : null;
  },
});

/** Weekly petroleum status: Wednesday at 10:30; after a holiday until then Thursday at 11:00. */
export const petroleumRelease = calendar({
  days: 5,
  announced: {},
  shiftFor: (holiday) =>
    holiday >= MONDAY && holiday <= WEDNESDAY ? { days: 1, hour: 11 * HOUR } : null,
});

/** The release of a report, by the key of its week; null: it is out at its usual hour. */
function calendar({ days, announced, shiftFor }: ReleaseRule): (key: string) => ReleaseTime | null {
  return (key) => {
    const known = announced[key];
    if (known) return { at: instantOf(Date.parse(`${known.at}Z`)), isDerived: false };
    const usual = Date.parse(key) + days * DAY;
    const monday = usual - ((weekday(usual) + 6) % 7) * DAY;
    const holiday = federalHolidays(new Date(usual).getUTCFullYear()).find(
      (day) => day >= monday && day < monday + 7 * DAY && shiftFor(weekday(day)) !== null,
    );
    const shift = holiday === undefined ? null : shiftFor(weekday(holiday));
    return shift && { at: instantOf(usual + shift.days * DAY + shift.hour), isDerived: true };
  };
}

/** The instant at which New York's clocks show a time, given as if it were UTC; by day only. */
function instantOf(wall: number): number {
  const day = Math.floor(wall / DAY) * DAY;
  const { to } = operatingDay(day + DAY / 2, NEW_YORK);
  // Clocks change in the night, so from a report to midnight all hours count.
  return to - DAY + (wall - day);
}
