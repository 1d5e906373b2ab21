// Keys of endpoints: each opens the predictions and the status of one endpoint, and nothing else.
// A key is shown once; only its hash is kept.

import { type SQL, sql } from "drizzle-orm";
import { endpointKey } from "../../../../db/vision/endpoints.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { EndpointKey } from "../../../../shared/wire/endpoints.ts";
import type { Database } from "../../../http/database.ts";
import { columnsOf, extended, rowsOf, selection } from "../../../http/selection.ts";
import { type Act, auditEntries } from "../../auth/audit.ts";
import { randomText, sha256 } from "../../auth/digest.ts";
import type { Parts } from "../../base/parts.ts";
import { type EndpointRow, notThere, SERVED_ENDPOINT, type ServedEndpoint } from "./endpoints.ts";
import type { KeyGate } from "./meter.ts";
import type { RateLimit } from "./token-bucket.ts";

export const KEY_PREFIX = "vek_";
const KEY_BYTES = 24;
/** Characters that are shown: the prefix and six more, which tell nothing of the rest. */
const SHOWN_CHARACTERS = KEY_PREFIX.length + 6;
/** Keys of an endpoint that open. */
const KEYS_MAX = 100;

const k = columnsOf(endpointKey, "k");
const KEY: SQL<EndpointKey> = selection({
  key_id: k.id,
  name: k.name,
  prefix: k.prefix,
  requests_per_minute: k.requestsPerMinute,
  burst: k.burst,
  created_at: k.createdAt,
  revoked_at: k.revokedAt,
});
/** An endpoint `e` with the key `k` that is asked with. */
const OPENED = extended(SERVED_ENDPOINT, {
  keyId: k.id,
  requestsPerMinute: k.requestsPerMinute,
  burst: k.burst,
});

/** What the audit log says of a key that a statement's part `k` made or revoked. */
const keyEntry = (
  act: Act,
  { endpointId, workspaceId, slug }: EndpointRow,
  { before, after }: { before: SQL; after: SQL },
) =>
  auditEntries(act, {
    subject: sql`${`endpoint:${endpointId}`}::text`,
    workspaceId: sql`${workspaceId}::uuid`,
    before: sql`jsonb_build_object('slug', ${slug}::text, 'key_id', k.id) || ${before}`,
    after: sql`jsonb_build_object('slug', ${slug}::text, 'key_id', k.id) || ${after}`,
    from: sql`k`,
  });

/**
 * Makes a key; the text is told here, and never again. Fails with `not_found` where the
 * endpoint was deleted meanwhile, and with `state_conflict` where it has as many keys as it may
 * have.
 */
export async function createKey(
  { database }: Pick<Parts, "database">,
  endpoint: EndpointRow,
  key: { name: string; limit: RateLimit | null; act: Act },
): Promise<{ record: EndpointKey; text: string }> {
  const text = KEY_PREFIX + randomText(KEY_BYTES);
  const { name, limit, act } = key;
  const madeEntry = keyEntry(act, endpoint, {
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('name', k.name)`,
  });
  const rows = await rowsOf(database, KEY)`
    WITH k AS (
      INSERT INTO endpoint_key
        (id, endpoint_id, name, prefix, hash, requests_per_minute, burst, created_by)
      SELECT ${crypto.randomUUID()}::uuid, e.id, ${name}, ${text.slice(0, SHOWN_CHARACTERS)},
        decode(${await sha256(text)}, 'hex'), ${limit?.requestsPerMinute ?? null}::int,
        ${limit?.burst ?? null}::int, ${act.actorId}::uuid FROM endpoint e
       WHERE e.id = ${endpoint.endpointId}::uuid AND e.deleted_at IS NULL
         AND (SELECT count(*) FROM endpoint_key WHERE endpoint_id = e.id AND revoked_at IS NULL)
           < ${KEYS_MAX}::int
      RETURNING *),
    logged AS (${madeEntry})
    SELECT ${KEY} FROM k`;
  const [record] = rows;
  if (record) return { record, text };
  const there = sql`SELECT FROM endpoint WHERE id = ${endpoint.endpointId}::uuid
    AND deleted_at IS NULL`;
  if ((await database.execute(there)).rows.length === 0) throw notThere();
  const detail = `the endpoint has ${KEYS_MAX} keys, which is as many as it may have: revoke one`;
  throw new Failure("state_conflict", detail, { data: { keys_max: KEYS_MAX } });
}

/** Keys of an endpoint, revoked ones too, the newest first. */
export async function listKeys(
  database: Database,
  { endpointId }: EndpointRow,
): Promise<EndpointKey[]> {
  const rows = await rowsOf(database, KEY)`
    SELECT ${KEY} FROM endpoint_key k WHERE k.endpoint_id = ${endpointId}::uuid
     ORDER BY k.created_at DESC, k.id`;
  return rows;
}

/** Ends a key, for good and at once. Fails with `not_found` for one that does not open. */
export async function revokeKey(
  database: Database,
  endpoint: EndpointRow,
  { keyId, act }: { keyId: string; act: Act },
): Promise<void> {
  const revokedEntry = keyEntry(act, endpoint, {
    before: sql`jsonb_build_object('revoked', false)`,
    after: sql`jsonb_build_object('revoked', true)`,
  });
  const { rows } = await database.execute(sql`
    WITH k AS (
      UPDATE endpoint_key SET revoked_at = now() WHERE id = ${keyId}::uuid
         AND endpoint_id = ${endpoint.endpointId}::uuid AND revoked_at IS NULL
      RETURNING *),
    logged AS (${revokedEntry})
    SELECT 1 FROM k`);
  if (rows.length === 0) throw new Failure("not_found", "no key of the endpoint that opens it");
}

/** An endpoint that a key opened. */
export interface OpenedEndpoint {
  row: ServedEndpoint;
  /** What the key has to pass; null without a limit. */
  gate: KeyGate | null;
}

/** The endpoint of a slug, if the key opens it: unknown, revoked or another's are all alike. */
export async function endpointOfKey(
  database: Database,
  { slug, key }: { slug: string; key: string },
): Promise<OpenedEndpoint | null> {
  const rows = await rowsOf(database, OPENED)`
    SELECT ${OPENED}
      FROM endpoint_key k JOIN endpoint e ON e.id = k.endpoint_id
     WHERE k.hash = decode(${await sha256(key)}, 'hex') AND k.revoked_at IS NULL
       AND e.slug = ${slug} AND e.deleted_at IS NULL`;
  const [found] = rows;
  if (!found) return null;
  const { keyId, requestsPerMinute, burst, ...row } = found;
  const isLimited = requestsPerMinute !== null && burst !== null;
  return { row, gate: isLimited ? { keyId, limit: { requestsPerMinute, burst } } : null };
}
