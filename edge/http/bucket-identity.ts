// That a database and a bucket belong together: both hold one identity. Where they differ, an
// address is wrong or the database is a new one, and nothing may be written to the bucket or
// deleted from it until an operator adopts it.

import type { R2Bucket } from "@cloudflare/workers-types";
import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../shared/errors.ts";
import { MINUTE, systemClock } from "../../shared/time.ts";
import type { Database } from "./database.ts";
import { pagesOf } from "./object-pages.ts";

/** The object that holds a bucket's identity, as JSON. */
export const IDENTITY_KEY = "vantage-identity.json";

/** A database with its bucket. */
export interface Pair {
  database: Database;
  bucket: Pick<R2Bucket, "get" | "put" | "list">;
  /**
   * A query of every object that the database names: `key`, and whether it is `required`, so that
   * one that is not there is a loss.
   */
  named: SQL;
}

/** How far a bucket holds what its database names. */
interface Holdings {
  /** Objects of the bucket. */
  objects: number;
  /** Required objects that the database names, and how many of them are there. */
  required: number;
  present: number;
}

/** After so long in vain, the whole bucket is looked at again. */
const AGAIN_MS = 10 * MINUTE;

const paired = new WeakSet<Database>();
/** When the bucket of a database was looked at as a whole, and what the two identities were. */
const looks = new WeakMap<Database, { at: number; identities: string }>();

/**
 * Passes where the database and the bucket have one identity; else fails with `bad_configuration`.
 * A pair without one is left alone, unless `mayAdopt`: it gets one where every object that the
 * database names is in the bucket, and that is more than nothing or all that there is.
 */
export async function requireOwnBucket(pair: Pair, { mayAdopt = false } = {}): Promise<void> {
  const { database, bucket } = pair;
  if (paired.has(database)) return;
  const [own, found] = await Promise.all([identityOf(database), identityIn(bucket)]);
  if (own === null || own !== found) {
    if (!mayAdopt && found === null) return;
    if (!mayAdopt || !(await isItsOwn(pair, { own, found }))) throw foreign(own, found);
    await adoptBucket(pair, found);
  }
  paired.add(database);
}

/**
 * Makes the bucket the database's own, and no other database's. A database without an identity
 * gets the given one, by default a new one.
 */
export async function adoptBucket(
  { database, bucket }: Omit<Pair, "named">,
  given: string | null = null,
): Promise<void> {
  const { rows } = await database.execute<{ id: string }>(sql`
    WITH added AS (
      INSERT INTO bucket_identity (id) VALUES (${given ?? crypto.randomUUID()}::uuid)
      ON CONFLICT DO NOTHING RETURNING id::text)
    SELECT id FROM added UNION ALL SELECT id::text FROM bucket_identity LIMIT 1`);
  // Another process was quicker by less than a statement: its row is seen by the next one.
  const id = rows[0]?.id ?? (await identityOf(database));
  if (id === null) throw new Error("the identity that was stored is not there");
  if (id === (await identityIn(bucket))) return;
  const httpMetadata = { contentType: "application/json" };
  await bucket.put(IDENTITY_KEY, JSON.stringify({ id }), { httpMetadata });
}

/** Whether a bucket is the database's, though the two have no common identity. */
async function isItsOwn(
  pair: Pair,
  { own, found }: { own: string | null; found: string | null },
): Promise<boolean> {
  const look = { at: systemClock(), identities: `${own} ${found}` };
  const before = looks.get(pair.database);
  if (before?.identities === look.identities && look.at - before.at < AGAIN_MS) return false;
  looks.set(pair.database, look);
  const { objects, required, present } = await holdingsOf(pair);
  if (required === 0 && objects === 0) return true;
  const isWhole = required > 0 && present === required;
  return isWhole && (own === null || found === null);
}

/** Counts what the database names and the bucket holds. */
export async function holdingsOf({ database, bucket, named }: Pair): Promise<Holdings> {
  const { rows } = await database.execute<{ required: number }>(sql`
    SELECT count(DISTINCT key)::int AS required FROM (${named}) n WHERE required`);
  let [objects, present] = [0, 0];
  for await (const page of pagesOf(bucket)) {
    const keys = page.map(({ key }) => key).filter((key) => key !== IDENTITY_KEY);
    objects += keys.length;
    const names = await namesAmong({ database, named }, keys);
    for (const required of names.values()) if (required) present++;
  }
  return { objects, required: rows[0]?.required ?? 0, present };
}

/** Which of these keys the database names, each with whether it is required. */
export async function namesAmong(
  { database, named }: Pick<Pair, "database" | "named">,
  keys: readonly string[],
): Promise<Map<string, boolean>> {
  if (keys.length === 0) return new Map();
  const { rows } = await database.execute<{ key: string; required: boolean }>(sql`
    SELECT key, bool_or(required) AS required FROM (${named}) n
     WHERE key IN (SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb)) GROUP BY key`);
  return new Map(rows.map(({ key, required }) => [key, required]));
}

async function identityOf(database: Database): Promise<string | null> {
  const { rows } = await database.execute<{ id: string }>(
    sql`SELECT id::text FROM bucket_identity`,
  );
  return rows[0]?.id ?? null;
}

async function identityIn(bucket: Pair["bucket"]): Promise<string | null> {
  const read = async () => (await bucket.get(IDENTITY_KEY))?.text();
  const text = await read().catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the object store does not answer", { cause });
  });
  if (text === undefined) return null;
  const { id } = JSON.parse(text) as { id?: unknown };
  return typeof id === "string" ? id : null;
}

function foreign(own: string | null, found: string | null): Failure {
  const ids = { catalog_identity: own, bucket_identity: found };
  const why =
    found === null
      ? "the bucket lacks objects that the database names"
      : "the database and the bucket have different identities";
  return new Failure(
    "bad_configuration",
    `${why}, so that nothing is written to it and nothing deleted. Set DATABASE_URL or the ` +
      "bucket right, restore what is missing, or make the bucket the database's own by " +
      "npm run backup -- adopt",
    { data: ids },
  );
}
