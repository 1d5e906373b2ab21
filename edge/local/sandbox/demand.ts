// The sandbox's grid: hourly demand of every balancing authority, as a pure function of the
// authority, the hour and when it is asked. Realistic shapes, and the faults of real reporting:
// hours that arrive late, days that are revised, values that are withdrawn for a while, nulls and
// impossible zeros.

import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";

/** A balancing authority of the sandbox's grid. */
export interface Authority {
  code: string;
  /** Mean demand, MWh an hour. Means of June 2023 where the authority reported demand then. */
  mean: number;
  /** Standard-time offset of its load centre, hours. */
  offset: number;
  /** First hour it reports. */
  since: number;
}

/** Oldest hour of the sandbox. */
export const HISTORY_FROM = Date.UTC(2023, 0, 1);

// Codes by zone. The facet list also names generation-only and retired authorities; the sandbox
// gives those a station-service load, so that every known code has a series.
const BY_ZONE: Readonly<Record<string, string>> = {
  "-5":
    "CPLE:7074 CPLW:477 DUK:11916 FMPP:2528 FPC:7734 FPL:18906 GVL:264 HST:84 ISNE:11938 JEA:1649 " +
    "LGEE:4041 NYIS:16030 PJM:84692 SC:3143 SCEG:2873 SEC:257 TAL:333 TEC:3048 NSB:52 OVEC:28 SEPA:4 YAD:6",
  "-6": "AEC:530 AECI:2542 EEI:9 ERCO:60149 GLHB:3 MISO:74283 SOCO:27218 SPA:58 SWPP:46681 TVA:18156 SIKE:38",
  "-7":
    "AZPS:3969 BHBA:310 DEAA:11 EPE:1199 GRIF:8 GRMA:6 GWA:2 HGMA:7 IPCO:2098 NWMT:1250 PACE:5454 " +
    "PNM:1604 PSCO:4377 SRP:4333 SWPW:2950 TEPC:1573 WACM:3243 WALC:1084 WAUW:81 WWA:2",
  "-8":
    "AVA:1383 AVRN:5 BANC:1916 BPAT:5907 CHPD:172 CISO:23798 DOPD:225 GCPD:753 GRID:4 IID:498 " +
    "LDWP:2477 NEVP:4578 PACW:2114 PGE:2276 PSEI:2363 SCL:926 TIDC:344 TPWR:470",
};
const SINCE: Readonly<Record<string, number>> = {
  SIKE: Date.UTC(2024, 5, 1, 6),
  BHBA: Date.UTC(2026, 5, 22, 7),
  SWPW: Date.UTC(2026, 5, 22, 7),
};

/** Every balancing authority, by code. */
export const AUTHORITIES: readonly Authority[] = Object.entries(BY_ZONE)
  .flatMap(([offset, list]) =>
    list.split(" ").map((entry) => {
      const [code = "", mean] = entry.split(":");
      return {
        code,
        mean: Number(mean),
        offset: Number(offset),
        since: SINCE[code] ?? HISTORY_FROM,
      };
    }),
  )
  .sort((left, right) => (left.code < right.code ? -1 : 1));

/** A number in [0, 1) from a text and integers; the same on every machine. */
export function chance(...parts: (string | number)[]): number {
  let hash = 2_166_136_261;
  for (const character of parts.join("|")) {
    hash = Math.imul(hash ^ character.charCodeAt(0), 16_777_619);
  }
  hash = Math.imul(hash ^ (hash >>> 15), 2_246_822_507);
  return ((hash ^ (hash >>> 13)) >>> 0) / 4_294_967_296;
}

/** A slow random walk in [−1, 1]: values at day boundaries, joined smoothly. */
function weather(code: string, localHour: number): number {
  const day = Math.floor(localHour / 24);
  const share = localHour / 24 - day;
  const at = (one: number) =>
    chance("weather", code, one) + chance("front", Math.floor(one / 4)) - 1;
  const smooth = share * share * (3 - 2 * share);
  return at(day) * (1 - smooth) + at(day + 1) * smooth;
}

/** A cosine of one period that is 1 at its peak. */
export const wave = (value: number, period: number, peak: number) =>
  Math.cos(((value - peak) / period) * 2 * Math.PI);

/** The demand that an authority finally reports for the hour that starts at `datetime`, MWh. */
export function finalDemand({ code, mean, offset }: Authority, datetime: number): number {
  const localHour = Math.floor(datetime / HOUR) + offset;
  const hour = ((localHour % 24) + 24) % 24;
  const day = Math.floor(localHour / 24);
  const yearDay = (day + 365) % 365.25;
  const weekend = (day + 4) % 7 === 0 || (day + 4) % 7 === 6;
  const summer = Math.max(0, wave(yearDay, 365.25, 205));
  const winter = Math.max(0, wave(yearDay, 365.25, 15));
  const afternoon = wave(hour, 24, 17) * (0.1 + 0.12 * summer);
  const morning = Math.max(0, wave(hour, 24, 8)) * 0.08 * winter;
  const evening = Math.max(0, wave(hour, 12, 19)) * 0.03;
  const seasonal = 0.92 + 0.22 * summer + 0.12 * winter;
  const heat = weather(code, localHour) * (0.05 + 0.1 * summer + 0.06 * winter);
  const noise = (chance("noise", code, localHour) - 0.5) * 0.012;
  const load =
    mean * seasonal * (1 + afternoon + morning + evening + heat + noise) * (weekend ? 0.93 : 1);
  return Math.max(1, Math.round(load));
}

/**
 * When the hour is first published: mostly 35 to 100 minutes after its end, one in twenty hours
 * late.
 */
export function publishedAt({ code }: Authority, datetime: number): number {
  const hour = datetime / HOUR;
  const usual = (35 + 65 * chance("lag", code)) * MINUTE;
  const late =
    chance("late", code, hour) < 0.05 ? (3 + 6 * chance("late by", code, hour)) * HOUR : 0;
  return datetime + HOUR + usual + late;
}

/** How long the provider's estimates of an hour go on being revised. */
const ESTIMATED_MS = 36 * HOUR;
/** The share of hours whose first values are estimates. */
const ESTIMATED_SHARE = 0.25;

/**
 * What the provider answers at `now` for the hour that starts at `datetime`: a number, null where
 * it reports none, or undefined where it has no row.
 */
export function demandAt(
  authority: Authority,
  datetime: number,
  now: number,
): number | null | undefined {
  if (datetime < authority.since || now < publishedAt(authority, datetime)) return undefined;
  const { code } = authority;
  const hour = datetime / HOUR;
  const age = now - datetime;
  if (chance("withdrawn", code, hour) < 1 / 1_500 && age > 30 * HOUR && age < 54 * HOUR)
    return undefined;
  if (chance("null", code, hour) < 1 / 3_000 && age < 2 * DAY) return null;
  if (chance("zero", code, hour) < 1 / 5_000 && age < DAY) return 0;
  const day = Math.floor(datetime / DAY);
  let share = 1;
  if (age < ESTIMATED_MS && chance("estimated", code, hour) < ESTIMATED_SHARE) {
    // Each minute's files have another estimate, nearer to the final value: who fetches twice sees
    // a revision.
    const guess = chance("estimate", code, hour, Math.floor(now / MINUTE)) - 0.5;
    share += guess * 0.02 * (1 - age / ESTIMATED_MS);
  }
  if (chance("resubmitted", code, day) < 0.2 && age < 26 * HOUR) {
    share += (chance("first guess", code, hour) - 0.5) * 0.012;
  }
  if (chance("restated", code, day) < 0.07 && age < 75 * HOUR) {
    share += (chance("second guess", code, day) - 0.5) * 0.03;
  }
  return Math.max(1, Math.round(finalDemand(authority, datetime) * share));
}
