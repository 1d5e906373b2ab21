// Migrations of later releases, of tests' own, applied to a vision database of many annotations
// while people read and edit them.

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type pg from "pg";
import { type DatabaseName, MIGRATIONS, migrateDatabase } from "../../edge/local/migrations.ts";

/** Those of a database and further ones, by their names; `remove` when they are applied. */
export function laterRelease(database: DatabaseName, later: Readonly<Record<string, string>>) {
  const folder = mkdtempSync(join(tmpdir(), "vantage-migrations-"));
  cpSync(MIGRATIONS[database], folder, { recursive: true });
  const journal = join(folder, "meta/_journal.json");
  const { entries, ...rest } = JSON.parse(readFileSync(journal, "utf8"));
  const last = entries.at(-1);
  for (const [index, [tag, text]] of Object.entries(later).entries()) {
    const [idx, when] = [last.idx + 1 + index, last.when + 1 + index];
    entries.push({ ...last, idx, when, tag });
    writeFileSync(join(folder, `${tag}.sql`), text);
  }
  writeFileSync(journal, JSON.stringify({ ...rest, entries }));
  return { folder, remove: () => rmSync(folder, { recursive: true }) };
}

/** A column with a check, filled step by step, and an index of it. */
const LATER = {
  "9998_column": `
    ALTER TABLE "annotation" ADD COLUMN "later" int;
    --> statement-breakpoint
    ALTER TABLE "annotation" ADD CONSTRAINT "later_positive" CHECK ("later" > 0) NOT VALID;`,
  "9999_index": `
    DO $$ DECLARE filled int; BEGIN
      LOOP
        UPDATE "annotation" SET "later" = 1 WHERE id IN (
          SELECT id FROM "annotation" WHERE "later" IS NULL LIMIT 5000 FOR UPDATE SKIP LOCKED);
        GET DIAGNOSTICS filled = ROW_COUNT;
        EXIT WHEN filled = 0;
        COMMIT;
      END LOOP;
    END $$;
    --> statement-breakpoint
    CREATE INDEX CONCURRENTLY IF NOT EXISTS "annotation_later" ON "annotation" ("job_id", "later");
    --> statement-breakpoint
    ALTER TABLE "annotation" VALIDATE CONSTRAINT "later_positive";`,
};

/** What requests came to. */
export interface RequestOutcome {
  requests: number;
  /** Those that were answered by a 5xx. */
  failed: string[];
  slowestMs: number;
  /** How long all migrations took. */
  migrationMs: number;
}

/**
 * Migrates a vision database as its owner while each of these goes on being asked, one request
 * after another; each answers with the response of its turn.
 */
export async function migrateBeside(
  owner: pg.ClientConfig,
  asks: readonly ((turn: number) => Promise<Response>)[],
): Promise<RequestOutcome> {
  const outcome: RequestOutcome = { requests: 0, failed: [], slowestMs: 0, migrationMs: 0 };
  let ended = false;
  const asking = asks.map(async (ask) => {
    for (let turn = 0; !ended; turn++) {
      const began = performance.now();
      const response = await ask(turn);
      const text = await response.text();
      outcome.requests++;
      outcome.slowestMs = Math.max(outcome.slowestMs, performance.now() - began);
      if (response.status >= 500) outcome.failed.push(`${response.status} ${text}`);
    }
  });
  const { folder, remove } = laterRelease("vision", LATER);
  const began = performance.now();
  try {
    await migrateDatabase("vision", owner, folder);
  } finally {
    outcome.migrationMs = performance.now() - began;
    ended = true;
    await Promise.all(asking);
    remove();
  }
  return outcome;
}
