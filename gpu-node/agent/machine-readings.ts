// What a Linux machine tells of itself: its battery, its temperature, its disk. What it does not
// have is null.

import * as fs from "node:fs";
import { uptime } from "node:os";
import { join } from "node:path";

const POWER = "/sys/class/power_supply";
const THERMAL = "/sys/class/thermal";

/** Readings of a heartbeat. */
export interface Readings {
  battery: number | null;
  temperature: number | null;
  uptime: number;
  free_bytes: number | null;
}

function numberIn(path: string): number | null {
  try {
    const value = Number(fs.readFileSync(path, "utf8").trim());
    return Number.isFinite(value) ? value : null;
  } catch {
    return null;
  }
}

function entriesOf(dir: string, name: RegExp): string[] {
  try {
    return fs.readdirSync(dir).filter((one) => name.test(one));
  } catch {
    return [];
  }
}

/** Bytes that a folder's disk has left for this user. */
function freeBytes(dir: string): number | null {
  try {
    const { bavail, bsize } = fs.statfsSync(dir);
    return bavail * bsize;
  } catch {
    return null;
  }
}

/** The hottest zone in degrees Celsius. */
function temperature(): number | null {
  const zones = entriesOf(THERMAL, /^thermal_zone/).flatMap((zone) => {
    const thousandths = numberIn(join(THERMAL, zone, "temp"));
    return thousandths === null ? [] : [thousandths / 1_000];
  });
  return zones.length > 0 ? Math.min(200, Math.max(-100, ...zones)) : null;
}

/** What this machine tells now; `dir` is on the disk that is asked about. */
export function readingsOf(dir: string): Readings {
  const [battery] = entriesOf(POWER, /^BAT/);
  const capacity = battery === undefined ? null : numberIn(join(POWER, battery, "capacity"));
  return {
    battery: capacity === null ? null : Math.min(100, Math.max(0, capacity)),
    temperature: temperature(),
    uptime: uptime(),
    free_bytes: freeBytes(dir),
  };
}
