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

/** After so long in vain, the whole bucket is looked at again. */
const AGAIN_MS = 10 * MINUTE;
/** Keys that one statement tells. */
const KEYS_AT_ONCE = 1_000;
/** So many lacking objects are enough to know. */
const LACKS_MAX = 100;

const paired = new WeakSet<Database>();
/** Looks at the whole bucket of a database, for all who ask meanwhile and for a while after. */
const looks = new WeakMap<Database, { until: number; isItsOwn: Promise<boolean> }>();

/**
 * Passes where the database and the bucket have one identity; else fails with `bad_configuration`.
 * A pair of which neither has one, or only the database one that it never wrote, is left alone,
 * unless `mayAdopt`. Then a bucket without one gets the database's, where it holds every object
 * that the database names and that is more than nothing, or where it holds nothing and nothing is
 * named.
 */
export async function requireOwnBucket(pair: Pair, { mayAdopt = false } = {}): Promise<void> {
  const { database, bucket } = pair;
  if (paired.has(database)) return;
  const [own, found] = await Promise.all([identityOf(database), identityIn(bucket)]);
  if (own?.isInBucket && own.id === found) {
    paired.add(database);
    return;
  }
  if (found !== null && found !== own?.id) throw foreign(own, found);
  if (!mayAdopt && !own?.isInBucket) return;
  // A bucket that holds the identity while the row does not say so is the database's already.
  if (!mayAdopt || (found === null && !(await isItsOwn(pair)))) throw foreign(own, found);
  await adoptBucket(pair);
  paired.add(database);
}

/**
 * Makes the bucket the database's own, and no other database's. A database without an identity
 * gets a new one.
 */
export async function adoptBucket({ database, bucket }: Omit<Pair, "named">): Promise<void> {
  const { rows } = await database.execute<{ id: string }>(sql`
    WITH added AS (
      INSERT INTO bucket_identity (id) VALUES (${crypto.randomUUID()}::uuid)
      ON CONFLICT DO NOTHING RETURNING id::text)
    SELECT id FROM added UNION ALL SELECT id::text FROM bucket_identity LIMIT 1`);
  // Another process was quicker by less than a statement: its row is seen by the next one.
  const id = rows[0]?.id ?? (await identityOf(database))?.id;
  if (id === undefined) throw new Error("the identity that was stored is not there");
  if (id !== (await identityIn(bucket))) {
    const httpMetadata = { contentType: "application/json" };
    await bucket.put(IDENTITY_KEY, JSON.stringify({ id }), { httpMetadata });
  }
  // Set last: a process that is killed before it leaves the pair as one without an identity.
  await database.execute(
    sql`UPDATE bucket_identity SET is_in_bucket = true WHERE NOT is_in_bucket`,
  );
}

/** Gives a bucket without an identity the database's. Fails where it is another's. */
export async function keepIdentity({ database, bucket }: Omit<Pair, "named">): Promise<void> {
  const [own, found] = await Promise.all([identityOf(database), identityIn(bucket)]);
  if (found !== null && found !== own?.id) throw foreign(own, found);
  await adoptBucket({ database, bucket });
}

/** Whether a bucket without an identity is the database's. */
function isItsOwn(pair: Pair): Promise<boolean> {
  const before = looks.get(pair.database);
  if (before && systemClock() < before.until) return before.isItsOwn;
  const look = { until: Number.POSITIVE_INFINITY, isItsOwn: lookAt(pair) };
  looks.set(pair.database, look);
  look.isItsOwn.then(
    () => {
      look.until = systemClock() + AGAIN_MS;
    },
    // What was not seen to its end says nothing.
    () => looks.delete(pair.database),
  );
  return look.isItsOwn;
}

/** Goes through the required keys and the bucket's beside each other, both in their order. */
async function lookAt(pair: Pair): Promise<boolean> {
  const held = keysIn(pair.bucket);
  let next = await held.next();
  const isEmpty = next.done === true;
  let named = 0;
  const lacks: string[] = [];
  for await (const key of requiredKeys(pair)) {
    named++;
    while (!next.done && next.value < key) next = await held.next();
    if (next.done || next.value !== key) lacks.push(key);
    if (lacks.length === LACKS_MAX) break;
  }
  if (named === 0) return isEmpty;
  // Some came, or went, while this looked.
  const names = await namesAmong(pair, lacks);
  for (const key of lacks.filter((one) => names.get(one))) {
    const { objects } = await pair.bucket.list({ prefix: key, limit: 1 });
    if (objects[0]?.key !== key) return false;
  }
  return lacks.length < LACKS_MAX;
}

async function* keysIn(bucket: Pair["bucket"]): AsyncGenerator<string, undefined> {
  for await (const page of pagesOf(bucket)) {
    for (const { key } of page) if (key !== IDENTITY_KEY) yield key;
  }
}

async function* requiredKeys({ database, named }: Pair): AsyncGenerator<string> {
  for (let after = ""; ; ) {
    const { rows } = await database.execute<{ key: string }>(sql`
      SELECT DISTINCT key COLLATE "C" AS key FROM (${named}) n
       WHERE required AND key COLLATE "C" > ${after} ORDER BY 1 LIMIT ${KEYS_AT_ONCE}`);
    for (const { key } of rows) yield key;
    if (rows.length < KEYS_AT_ONCE) return;
    after = rows.at(-1)?.key ?? "";
  }
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

/** A database's identity, and whether its bucket was given it. */
interface OwnIdentity extends Record<string, unknown> {
  id: string;
  isInBucket: boolean;
}

async function identityOf(database: Database): Promise<OwnIdentity | null> {
  const { rows } = await database.execute<OwnIdentity>(
    sql`SELECT id::text, is_in_bucket AS "isInBucket" FROM bucket_identity`,
  );
  return rows[0] ?? null;
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

function foreign(own: OwnIdentity | null, found: string | null): Failure {
  const ids = { catalog_identity: own?.id ?? null, bucket_identity: found };
  const why =
    found === null
      ? "the bucket does not hold just what the database names"
      : "the database and the bucket have different identities";
  return new Failure(
    "bad_configuration",
    `${why}, so that nothing is written to it and nothing deleted. Set DATABASE_URL or the ` +
      "bucket right, restore what is missing, or make the bucket the database's own by " +
      "npm run backup -- adopt",
    { data: ids },
  );
}
