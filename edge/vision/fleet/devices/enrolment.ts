// How a device comes to its token: by a one-time code that a person made for it. Both are kept as
// hashes only. Where the device sent a nonce, its token follows from both: whoever comes again with
// both has not got the answer, and gets it once more.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import { DAY, iso } from "../../../../shared/time.ts";
import type { EnrolDevice, EnrolmentCode } from "../../../../shared/wire/fleet.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import { storable } from "../../../http/storable.ts";
import type { AttemptTable } from "../../../http/throttle.ts";
import { checkGuess, clientAddress } from "../../../http/throttle.ts";
import { type Act, actorKindOf, auditEntries } from "../../auth/audit.ts";
import { randomText, sha256, toBase64url } from "../../auth/digest.ts";
import { keyedHash } from "../../auth/tokens.ts";
import type { Parts } from "../../base/parts.ts";
import { instant } from "../../base/sql.ts";
import { newDeviceToken, opensAt, tokenOf } from "./access.ts";

const CODE_PREFIX = "vdc_";
/** 128 bits, which nobody guesses. */
const CODE_BYTES = 16;
/** Bytes of a keyed hash of them that end a code: what lacks it was not made here. */
const MARK_BYTES = 6;
const CODE_MS = DAY;
/** Wrong codes that one address may try in a minute. */
const PER_ADDRESS = 60;

const ATTEMPTS: AttemptTable = { name: "throttle", key: "key", type: "text" };

/** A new code, with its hash and its end as the database takes them. */
export interface NewCode {
  code: string;
  hash: string;
  expiresAt: string;
}

type CodeParts = Pick<Parts, "clock" | "tokenSecret">;

/** A code that opens for a day. */
export async function newCode(parts: CodeParts): Promise<NewCode> {
  const random = randomText(CODE_BYTES);
  const code = await marked(parts, random);
  return { code, hash: await sha256(code), expiresAt: iso(parts.clock() + CODE_MS) };
}

async function marked({ tokenSecret }: Pick<CodeParts, "tokenSecret">, random: string) {
  const mark = (await keyedHash(tokenSecret, "enrolment", random)).subarray(0, MARK_BYTES);
  return CODE_PREFIX + random + toBase64url(mark);
}

/** Whether a code was made here: one that somebody made up is known without the database. */
async function isMadeHere(parts: Pick<CodeParts, "tokenSecret">, code: string): Promise<boolean> {
  const length = Math.ceil((CODE_BYTES * 8) / 6);
  const random = code.slice(CODE_PREFIX.length, CODE_PREFIX.length + length);
  return code === (await marked(parts, random));
}

/** What the audit log says of a code that a statement's part `made` made for a device. */
export const codeEntry = (act: Act, { expiresAt }: NewCode) =>
  auditEntries(act, {
    subject: sql`'device:' || made.id`,
    workspaceId: sql`made.workspace_id`,
    before: sql`NULL::jsonb`,
    after: sql`jsonb_build_object('name', made.name, 'expires_at', ${expiresAt}::text)`,
    from: sql`made`,
  });

/**
 * Makes a device's next code; those before it end. Whoever uses it gets a new token, and the
 * device's former ones end then.
 */
export async function renewCode(
  parts: Pick<Parts, "database"> & CodeParts,
  { deviceId, act }: { deviceId: string; act: Act },
): Promise<EnrolmentCode> {
  const fresh = await newCode(parts);
  const { rows } = await parts.database.execute(sql`
    WITH made AS (
      SELECT id, workspace_id, name FROM device
       WHERE id = ${deviceId}::uuid AND deleted_at IS NULL FOR UPDATE),
    former AS (DELETE FROM device_code USING made WHERE device_id = made.id AND used_at IS NULL),
    code AS (
      INSERT INTO device_code (hash, device_id, created_by, created_at, expires_at)
      SELECT decode(${fresh.hash}, 'hex'), id, ${act.actorId}::uuid, ${instant(parts.clock())},
        ${fresh.expiresAt}::timestamptz FROM made),
    logged AS (${codeEntry(act, fresh)})
    SELECT id FROM made`);
  if (rows.length === 0) throw new Failure("not_found", "no such device in your workspaces");
  return { enrolment_code: fresh.code, expires_at: fresh.expiresAt };
}

/** A device that enrolled. */
interface Enrolment extends Record<string, unknown> {
  deviceId: string;
  intervalSeconds: number;
}

/**
 * Enrols a device, as `useCode` does. Codes that were made here and do not open are limited, of an
 * address or, where none is known, of all; one that opens is taken back, so that a fleet behind one
 * address is let in. What strangers make up asks no database, so that it neither counts there nor
 * keeps a device waiting. Fails with `too_many_attempts`, and with `unauthorized` for a code that
 * does not open.
 */
export async function enrolDevice(
  parts: Parts,
  request: { header(name: string): string | undefined },
  { body, requestId }: { body: EnrolDevice; requestId: string },
): Promise<Enrolment & { token: string }> {
  const refused = new Failure(
    "unauthorized",
    "the code is unknown, used or expired; ask for a new one",
  );
  if (!(await isMadeHere(parts, body.code))) throw refused;
  const address = clientAddress(request, parts.behindCloudflare);
  const key = address === null ? "enrol" : `enrol ${address}`;
  const limits = address === null ? [] : [{ key: `wrong ${key}`, attemptsMax: PER_ADDRESS }];
  const guess = { limits, line: key, known: null };
  const enrolled = await checkGuess(parts, ATTEMPTS, guess, () => useCode(parts, body, requestId));
  if (!enrolled) throw refused;
  return enrolled;
}

/**
 * Trades a code for a device's token, once; the device's former tokens end at once, and one that
 * was revoked comes back. The same code and nonce are answered again while the code would open and
 * its token does. Null for any other code.
 */
async function useCode(
  { database, clock }: Pick<Parts, "database" | "clock">,
  { code, nonce, agent_version, platform, runtime }: EnrolDevice,
  requestId: string,
): Promise<(Enrolment & { token: string }) | null> {
  const token = nonce === undefined ? newDeviceToken() : await tokenOf({ code, nonce });
  const now = instant(clock());
  const { rows } = await database.execute<Enrolment>(sql`
    WITH used AS (
      UPDATE device_code c SET used_at = ${now} FROM device d
       WHERE c.hash = decode(${await sha256(code)}, 'hex') AND c.used_at IS NULL
         AND c.expires_at > ${now} AND d.id = c.device_id AND d.deleted_at IS NULL
      RETURNING c.device_id, c.created_by),
    d AS (
      UPDATE device SET enrolled_at = ${now}, revoked_at = NULL, platform = ${storable(platform)},
        runtime = ${storable(runtime)}
        FROM used WHERE id = used.device_id
      RETURNING id, workspace_id, name, interval_seconds),
    former AS (DELETE FROM device_token USING used WHERE device_token.device_id = used.device_id),
    made AS (
      INSERT INTO device_token (hash, device_id, created_at, used_at)
      SELECT decode(${await sha256(token)}, 'hex'), device_id, ${now}, ${now} FROM used),
    logged AS (
      INSERT INTO audit_entry (actor_id, actor_kind, action, subject, workspace_id, after,
        request_id)
      SELECT used.created_by, ${actorKindOf(sql`used.created_by`)}, 'enrolDevice', 'device:' || d.id, d.workspace_id,
        jsonb_build_object('name', d.name, 'platform', ${storable(platform)}::text,
          'agent_version', ${storable(agent_version)}::text, 'enrolled_at', ${wireTime(now)}),
        ${requestId} FROM d, used)
    SELECT id::text AS "deviceId", interval_seconds AS "intervalSeconds" FROM d`);
  const [enrolled = nonce === undefined ? null : await enrolledBy(database, { code, token, now })] =
    rows;
  return enrolled ? { ...enrolled, token } : null;
}

/** The device that a code was traded for this token by, while both would open. */
async function enrolledBy(
  database: Database,
  { code, token, now }: { code: string; token: string; now: SQL },
): Promise<Enrolment | null> {
  const { rows } = await database.execute<Enrolment>(sql`
    SELECT d.id::text AS "deviceId", d.interval_seconds AS "intervalSeconds"
      FROM device_code c JOIN device d ON d.id = c.device_id
      JOIN device_token t ON t.device_id = d.id AND t.hash = decode(${await sha256(token)}, 'hex')
     WHERE c.hash = decode(${await sha256(code)}, 'hex') AND c.used_at IS NOT NULL
       AND c.expires_at > ${now} AND ${opensAt(now)}`);
  return rows[0] ?? null;
}
