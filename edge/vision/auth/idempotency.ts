// Idempotency-Key: a POST repeated under its key is answered as the first time, and done once.

import { z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { iso, MINUTE } from "../../../shared/time.ts";
import { isSilent } from "../../http/database.ts";
import { jsonb } from "../../http/storable.ts";
import type { Parts } from "../base/parts.ts";
import { sha256 } from "./digest.ts";

export interface Answer<Body> {
  status: number;
  body: Body;
}

export interface OnceRequest {
  workspaceId: string;
  /** Such as `POST /label`: the same key on another route is another key. */
  route: string;
  /** The header's value, checked; without one, every request is a new one. */
  key: string | undefined;
  /** The parsed body; its JSON is compared. */
  body: unknown;
}

/** The header, for the routes that take it. */
export const IdempotencyKey = z.object({
  "idempotency-key": z
    .string()
    .regex(/^[\x21-\x7e]{1,200}$/, "must be 1 to 200 printable characters")
    .optional()
    .meta({
      description: "the same key with the same body is answered as the first time, and done once",
    }),
});

/** The state of a key whose first request is still being answered. */
const PENDING = 0;
/** A first request that has not answered by then died; the next one takes over. */
const ABANDONED_MS = MINUTE;
/** How long a repeated request waits for the first one's answer. */
const WAIT_MS = 10_000;
const POLL_MS = 100;

/**
 * Answers with what `make` gives, once for each key. Fails with `idempotency_conflict` when the key
 * came with another body, or when its first request takes too long. A failure is not kept: the next
 * request under the key tries again, after a minute where the database gave the first no answer.
 */
export async function answerOnce<Body>(
  parts: Parts,
  request: OnceRequest,
  make: () => Promise<Answer<Body>>,
): Promise<Answer<Body>> {
  if (request.key === undefined) return make();
  const hold = {
    ...request,
    key: request.key,
    sha256: await sha256(JSON.stringify(request.body) ?? ""),
    takenAt: "",
  };
  for (let waited = 0; ; waited += POLL_MS) {
    hold.takenAt = iso(parts.clock());
    const known = await take(parts, hold);
    if (known === "taken") break;
    if (known.sha256 !== hold.sha256) {
      throw new Failure("idempotency_conflict", "this Idempotency-Key came with another body");
    }
    if (known.status !== PENDING) return { status: known.status, body: known.body as Body };
    if (waited >= WAIT_MS) {
      const detail = "the first request under this Idempotency-Key is still at work; try again";
      throw new Failure("idempotency_conflict", detail);
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
  try {
    const answer = await make();
    await storeAnswer(parts, hold, answer);
    return answer;
  } catch (thrown) {
    // Nobody knows what became of a statement without an answer: it may have been done. The key
    // stays taken, and is another's once the first request counts as dead.
    if (!isSilent(thrown)) await release(parts, hold);
    throw thrown;
  }
}

/** A request's hold on its key; `takenAt` tells it from that of a later one that took over. */
type KeyHold = OnceRequest & { key: string; sha256: string; takenAt: string };

const keyCondition = ({ workspaceId, route, key }: KeyHold) =>
  sql`workspace_id = ${workspaceId}::uuid AND route = ${route} AND key = ${key}`;

/** The hold of this request, still without an answer. */
const ownHold = (hold: KeyHold) => sql`${keyCondition(hold)} AND status = ${PENDING}
  AND created_at = ${hold.takenAt}::timestamptz`;

/** Takes the key for this request, or tells what another made of it. */
async function take({ database }: Parts, hold: KeyHold) {
  const abandonedBefore = iso(Date.parse(hold.takenAt) - ABANDONED_MS);
  const { rows } = await database.execute<{
    taken: boolean;
    sha256: string;
    status: number;
    body: unknown;
  }>(sql`
    WITH taken AS (
      INSERT INTO idempotent_answer AS i
        (workspace_id, route, key, body_sha256, status, body, created_at)
      VALUES (${hold.workspaceId}::uuid, ${hold.route}, ${hold.key},
        decode(${hold.sha256}, 'hex'), ${PENDING}, 'null', ${hold.takenAt}::timestamptz)
      ON CONFLICT (workspace_id, route, key) DO UPDATE SET created_at = excluded.created_at
        WHERE i.status = ${PENDING} AND i.body_sha256 = excluded.body_sha256
          AND i.created_at < ${abandonedBefore}::timestamptz
      RETURNING key)
    SELECT EXISTS (SELECT FROM taken) AS taken, encode(body_sha256, 'hex') AS sha256, status, body
      FROM idempotent_answer WHERE ${keyCondition(hold)}
    UNION ALL
    SELECT true, '', ${PENDING}, 'null' FROM taken LIMIT 1`);
  const row = rows[0];
  // Not taken and not seen: another request took it while this statement ran.
  if (!row) return { sha256: hold.sha256, status: PENDING, body: null };
  return row.taken ? "taken" : row;
}

async function storeAnswer({ database }: Parts, hold: KeyHold, { status, body }: Answer<unknown>) {
  await database.execute(sql`
    UPDATE idempotent_answer SET status = ${status}, body = ${jsonb(body)}
     WHERE ${ownHold(hold)}`);
}

async function release({ database }: Parts, hold: KeyHold) {
  await database.execute(sql`DELETE FROM idempotent_answer WHERE ${ownHold(hold)}`);
}
