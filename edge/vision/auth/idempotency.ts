// Idempotency-Key: a POST repeated under its key is answered as the first time, and done once.

import { z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { iso, MINUTE } from "../../../shared/time.ts";
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
/** A first request that has not answered by then died; the next one takes its place. */
const ABANDONED_MS = MINUTE;
/** How long a repeated request waits for the first one's answer. */
const WAIT_MS = 10_000;
const POLL_MS = 100;

/**
 * Answers with what `make` gives, once for each key. Fails with `idempotency_conflict` when the key
 * came with another body, or when its first request takes too long. A failure is not kept: the next
 * request under the key tries again.
 */
export async function answerOnce<Body>(
  parts: Parts,
  request: OnceRequest,
  make: () => Promise<Answer<Body>>,
): Promise<Answer<Body>> {
  if (request.key === undefined) return make();
  const held = {
    ...request,
    key: request.key,
    sha256: await sha256(JSON.stringify(request.body) ?? ""),
    takenAt: "",
  };
  for (let waited = 0; ; waited += POLL_MS) {
    held.takenAt = iso(parts.clock());
    const found = await take(parts, held);
    if (found === "taken") break;
    if (found.sha256 !== held.sha256) {
      throw new Failure("idempotency_conflict", "this Idempotency-Key came with another body");
    }
    if (found.status !== PENDING) return { status: found.status, body: found.body as Body };
    if (waited >= WAIT_MS) {
      const detail = "the first request under this Idempotency-Key is still at work; try again";
      throw new Failure("idempotency_conflict", detail);
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
  try {
    const answer = await make();
    await settle(parts, held, answer);
    return answer;
  } catch (thrown) {
    await release(parts, held);
    throw thrown;
  }
}

/** `takenAt` tells this request's hold from that of one that took its place. */
type Held = OnceRequest & { key: string; sha256: string; takenAt: string };

const place = ({ workspaceId, route, key }: Held) =>
  sql`workspace_id = ${workspaceId}::uuid AND route = ${route} AND key = ${key}`;

/** The hold of this request, still without an answer. */
const ownHold = (held: Held) => sql`${place(held)} AND status = ${PENDING}
  AND created_at = ${held.takenAt}::timestamptz`;

/** Takes the key for this request, or tells what another made of it. */
async function take({ database }: Parts, held: Held) {
  const abandonedBefore = iso(Date.parse(held.takenAt) - ABANDONED_MS);
  const { rows } = await database.execute<{
    taken: boolean;
    sha256: string;
    status: number;
    body: unknown;
  }>(sql`
    WITH taken AS (
      INSERT INTO idempotent_answer AS i
        (workspace_id, route, key, body_sha256, status, body, created_at)
      VALUES (${held.workspaceId}::uuid, ${held.route}, ${held.key},
        decode(${held.sha256}, 'hex'), ${PENDING}, 'null', ${held.takenAt}::timestamptz)
      ON CONFLICT (workspace_id, route, key) DO UPDATE SET created_at = excluded.created_at
        WHERE i.status = ${PENDING} AND i.body_sha256 = excluded.body_sha256
          AND i.created_at < ${abandonedBefore}::timestamptz
      RETURNING key)
    SELECT EXISTS (SELECT FROM taken) AS taken, encode(body_sha256, 'hex') AS sha256, status, body
      FROM idempotent_answer WHERE ${place(held)}
    UNION ALL
    SELECT true, '', ${PENDING}, 'null' FROM taken LIMIT 1`);
  const row = rows[0];
  // Not taken and not seen: another request took it while this statement ran.
  if (!row) return { sha256: held.sha256, status: PENDING, body: null };
  return row.taken ? "taken" : row;
}

async function settle({ database }: Parts, held: Held, { status, body }: Answer<unknown>) {
  await database.execute(sql`
    UPDATE idempotent_answer SET status = ${status}, body = ${JSON.stringify(body)}::jsonb
     WHERE ${ownHold(held)}`);
}

async function release({ database }: Parts, held: Held) {
  await database.execute(sql`DELETE FROM idempotent_answer WHERE ${ownHold(held)}`);
}
