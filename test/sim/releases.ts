// When the providers of the thirteen-month simulation publish each value: their usual times, late
// hours, late weeks, holidays, and now and then a release that comes after everybody stopped
// waiting.

import { operatingDay } from "../../edge/markets/store/operating-day.ts";
import { addMonths, DAY, HOUR, MINUTE } from "../../shared/time.ts";

interface Step {
  /** The first valid time at or after an instant. */
  first(instant: number): number;
  next(validTime: number): number;
}

const every = (ms: number, origin = 0): Step => ({
  first: (instant) => Math.ceil((instant - origin) / ms) * ms + origin,
  next: (validTime) => validTime + ms,
});
const monthly: Step = {
  first: (instant) => (addMonths(instant, 0) === instant ? instant : addMonths(instant, 1)),
  next: (validTime) => addMonths(validTime, 1),
};
const isWeekend = (day: number) => [0, 6].includes(new Date(day).getUTCDay());
const weekdays: Step = {
  first: (instant) => {
    const day = Math.ceil(instant / DAY) * DAY;
    return isWeekend(day) ? weekdays.first(day + DAY) : day;
  },
  next: (validTime) => weekdays.first(validTime + DAY),
};

/** The valid times of a job's model. */
export function stepOf(job: string): Step {
  if (job === "gas_storage" || job === "petroleum_status") return every(7 * DAY, DAY);
  if (job === "degree_days" || job === "agency_forecast") return monthly;
  if (job === "spot_prices" || job === "intraday_bars") return weekdays;
  return every(job === "grid_region" || job === "generation_by_fuel" ? 6 * HOUR : HOUR);
}

/** A number in [0, 1) from what is asked. */
function share(job: string, validTime: number): number {
  let hash = validTime / HOUR;
  for (const character of job) hash = Math.imul(hash ^ character.charCodeAt(0), 16_777_619);
  hash = Math.imul(hash ^ (hash >>> 15), 2_246_822_507);
  return ((hash ^ (hash >>> 13)) >>> 0) / 4_294_967_296;
}

/** When a value of the job's model is published. */
export function releaseOf(job: string, validTime: number): number {
  const luck = share(job, validTime);
  if (job === "gas_storage") return validTime + 6 * DAY + 15 * HOUR + weekly(luck);
  if (job === "petroleum_status") return validTime + 5 * DAY + 15 * HOUR + weekly(luck);
  if (job === "degree_days") {
    // The 4th to the 9th of the next month; one month in ten later than anybody waits.
    return addMonths(validTime, 1) + (luck > 0.9 ? 25 : 3 + 6 * luck) * DAY;
  }
  if (job === "agency_forecast") return addMonths(validTime, 0) + 6 * DAY;
  if (job === "spot_prices") return validTime + (1 + 4 * luck) * DAY;
  if (job === "day_ahead_prices") {
    const noon = operatingDay(validTime).from - 12 * HOUR;
    const day = share(job, noon);
    return noon + (day > 0.97 ? 6 : day > 0.9 ? 3 : 0.5 + day) * HOUR;
  }
  if (job === "grid_region" || job === "generation_by_fuel")
    return validTime + (1 + 5 * luck) * HOUR;
  return validTime + HOUR + 5 * MINUTE + (luck > 0.98 ? 2 * HOUR : 0);
}

/** Mostly within the hour, at times hours late, at times a day for a holiday. */
const weekly = (luck: number) =>
  luck > 0.93 ? 26 * HOUR : luck > 0.8 ? 5 * HOUR : luck * 60 * MINUTE;
