// What the commands print of runs and backfills, pure.

import type { Backfill, Run, RunEvent } from "../../shared/wire/markets.ts";
import type { Refusal } from "../../shared/wire/refusals.ts";

/** Rows with their columns aligned; the last is as long as it likes. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths = rows.reduce<number[]>(
    (max, row) => row.map((cell, index) => Math.max(max[index] ?? 0, cell.length)),
    [],
  );
  return rows.map((row) =>
    row
      .map((cell, index) => (index === row.length - 1 ? cell : cell.padEnd(widths[index] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}

/** What a line about a run says after its state: rows, a failed check, the reason it failed. */
export function detailOf(run: Run): string {
  const rows = run.metadata?.rows_written;
  const written = rows === undefined ? "" : `  ${String(rows)} rows`;
  const reason = run.error_code ? `  ${run.error_code}: ${run.error_detail}` : "";
  const check = run.metadata?.check as { passed: boolean; reason: string | null } | undefined;
  const warning = check && !check.passed ? `  CHECK FAILED ${check.reason}` : "";
  return `${written}${warning}${reason}`;
}

/** A run in one line. */
export function runLine(run: Run): string {
  const head = `${run.created_at}  ${run.job}  ${run.partition}  ${run.trigger}  ${run.state}`;
  return `${head}${detailOf(run)}  ${run.run_id}`;
}

/** A refused change in one line. */
export function refusalLine(refusal: Refusal): string {
  const { library, symbol, withdrawn, stored, inserted, revised } = refusal;
  const counts = `${withdrawn} of ${stored} rows would go, ${inserted} come, ${revised} change`;
  const head = `${refusal.refused_at}  ${refusal.job}  ${refusal.partition}  ${refusal.state}`;
  return `${head}  ${library}.${symbol}: ${counts}  ${refusal.refusal_id}`;
}

/** An entry of a run's journal in one line. */
export function eventLine({ at, attempt, level, event, detail }: RunEvent): string {
  const mark = level === "info" ? "" : `${level.toUpperCase()} `;
  const told = Object.entries(detail).map(
    ([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return [at, `#${attempt}`, `${mark}${event}`, ...told].join("  ");
}

/** How far a backfill is. */
export function progressOf({ runs }: Pick<Backfill, "runs">) {
  const { queued, waiting, running, succeeded, ...others } = runs;
  const unsound = Object.entries(others).filter(([, count]) => count > 0);
  const ended = unsound.reduce((total, [, count]) => total + count, succeeded);
  return { ended, total: ended + queued + waiting + running, unsound };
}

const BAR_CELLS = 30;

/** `[#######-----------------------]  7/30  1 failed`. */
export function barOf(backfill: Pick<Backfill, "runs">): string {
  const { ended, total, unsound } = progressOf(backfill);
  const filled = Math.floor((ended / Math.max(1, total)) * BAR_CELLS);
  const bar = `[${"#".repeat(filled)}${"-".repeat(BAR_CELLS - filled)}]`;
  const count = `${String(ended).padStart(String(total).length)}/${total}`;
  return [bar, count, ...unsound.map(([state, one]) => `${one} ${state}`)].join("  ");
}
