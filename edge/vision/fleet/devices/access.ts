// Who comes with a device's token. A token opens what is its own device's: its heartbeat, its logs,
// its images, its manifest, its artifact, its next token. Another device's id is 404, as what does
// not exist; an unknown, ended or revoked token is 401.

import { type SQL, sql } from "drizzle-orm";
import type { Context, MiddlewareHandler } from "hono";
import { assert, Failure } from "../../../../shared/errors.ts";
import type { Audience } from "../../../http/route.ts";
import { loggedIn, user } from "../../auth/audience.ts";
import { randomText, sha256, toBase64url } from "../../auth/digest.ts";
import { authenticate } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { instant } from "../../base/sql.ts";

export const DEVICE_TOKEN_PREFIX = "vdt_";
const TOKEN_BYTES = 32;
/** Seconds that a former token opens after the first use of the one that followed it. */
export const TOKEN_OVERLAP_SECONDS = 600;

/** A new token. */
export const newDeviceToken = (): string => DEVICE_TOKEN_PREFIX + randomText(TOKEN_BYTES);

/**
 * The token that follows from a code and the nonce of who trades it (HMAC-SHA-256 of the code by
 * the nonce): nobody knows it who does not know both.
 */
export async function tokenOf({ code, nonce }: { code: string; nonce: string }): Promise<string> {
  const encoder = new TextEncoder();
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", encoder.encode(nonce), hmac, false, ["sign"]);
  const text = encoder.encode(`vantage-device-token ${code}`);
  return (
    DEVICE_TOKEN_PREFIX + toBase64url(new Uint8Array(await crypto.subtle.sign(hmac, key, text)))
  );
}

/** A device that came with its token. */
export interface DeviceIdentity extends Record<string, unknown> {
  deviceId: string;
  workspaceId: string;
}

/** The hash of the token that a request came with; null where it has none of a device. */
export async function tokenHash(context: Pick<Context, "req">): Promise<string | null> {
  const given = context.req.header("Authorization") ?? "";
  const token = /^Bearer (vdt_[\w-]{1,100})$/i.exec(given)?.[1];
  return token === undefined ? null : await sha256(token);
}

/** The failure of a request without a token that opens. */
export function noToken(context: Pick<Context, "header">): Failure {
  context.header("WWW-Authenticate", "Bearer");
  return new Failure(
    "unauthorized",
    "send this device's valid token as Authorization: Bearer; one that was revoked is replaced by " +
      "enrolling again",
  );
}

export const noDevice = () => new Failure("not_found", "no such device, or not the token's own");

/** Whether a row of `device_token` `t` and its device `d` open at an instant. */
export const opensAt = (now: SQL): SQL => sql`(t.expires_at IS NULL OR t.expires_at > ${now})
  AND d.revoked_at IS NULL AND d.deleted_at IS NULL`;

/** Lets a request pass only with the token of the device that its path names. */
const authenticateDevice: MiddlewareHandler = async (context, next) => {
  const parts = context.get("service") as Parts;
  const hash = await tokenHash(context);
  const found = hash === null ? null : await deviceOfToken(parts, hash);
  if (!found) throw noToken(context);
  if (found.deviceId !== context.req.param("device_id")) throw noDevice();
  context.set("device", found);
  await next();
};

/** The device that the path names. */
export const device = {
  schemes: {
    deviceToken: {
      type: "http",
      scheme: "bearer",
      description: "a device's token, which opens what is its own",
    },
  },
  guards: [authenticateDevice],
  description: "For edge devices.",
} as const satisfies Audience;

/**
 * The device that the path names, as `byDevice` checks its token, or whoever has an access token,
 * whose role the handler checks.
 */
export const deviceOrUser = (byDevice = authenticateDevice): Audience => ({
  schemes: { ...device.schemes, ...user.schemes },
  guards: [
    async (context, next) =>
      (await tokenHash(context)) === null ? authenticate(context, next) : byDevice(context, next),
  ],
  errors: ["forbidden"],
  errorsOfChanges: loggedIn.errorsOfChanges,
});

/** The device whose token let a request pass. */
export function deviceOf(context: Pick<Context, "get">): DeviceIdentity {
  const device = context.get("device") as DeviceIdentity | undefined;
  assert(device, "a route that asks for its device is for devices");
  return device;
}

async function deviceOfToken(
  { database, clock }: Pick<Parts, "database" | "clock">,
  hash: string,
): Promise<DeviceIdentity | null> {
  const now = clock();
  const { rows } = await database.execute<DeviceIdentity & { isNew: boolean }>(sql`
    SELECT d.id::text AS "deviceId", d.workspace_id::text AS "workspaceId",
      t.used_at IS NULL AS "isNew"
      FROM device_token t JOIN device d ON d.id = t.device_id
     WHERE t.hash = decode(${hash}, 'hex') AND ${opensAt(instant(now))}`);
  const [found] = rows;
  if (!found) return null;
  const { isNew, deviceId, workspaceId } = found;
  if (isNew) await noteFirstUse({ database }, { hash, now });
  return { deviceId, workspaceId };
}

/** Notes that a device came with a new token: those before it end soon. */
export async function noteFirstUse(
  { database }: Pick<Parts, "database">,
  { hash, now }: { hash: string; now: number },
): Promise<void> {
  const ends = instant(now + TOKEN_OVERLAP_SECONDS * 1_000);
  await database.execute(sql`
    WITH used AS (
      UPDATE device_token SET used_at = ${instant(now)}
       WHERE hash = decode(${hash}, 'hex') AND used_at IS NULL RETURNING hash, device_id)
    UPDATE device_token o SET expires_at = least(o.expires_at, ${ends}) FROM used
     WHERE o.device_id = used.device_id AND o.hash <> used.hash`);
}

/** Next tokens of a device that were not used yet, and wait beside a newer one. */
const UNUSED_TOKENS_MAX = 3;

/**
 * Makes a device's next token. The one that it came with opens on until the new one was used, so
 * that an answer that is lost locks nobody out. Nor does a copy of the request that comes late:
 * some next ones that nobody used open, too, until one of them is used. Of those that ended
 * nothing is kept.
 */
export async function rotateToken(
  { database, clock }: Pick<Parts, "database" | "clock">,
  { deviceId }: DeviceIdentity,
): Promise<string> {
  const token = newDeviceToken();
  const now = instant(clock());
  await database.execute(sql`
    WITH ended AS (
      DELETE FROM device_token WHERE device_id = ${deviceId}::uuid
         AND (expires_at <= ${now} OR used_at IS NULL AND hash NOT IN (
           SELECT hash FROM device_token WHERE device_id = ${deviceId}::uuid AND used_at IS NULL
            ORDER BY created_at DESC, hash LIMIT ${UNUSED_TOKENS_MAX}::int)))
    INSERT INTO device_token (hash, device_id, created_at)
    VALUES (decode(${await sha256(token)}, 'hex'), ${deviceId}::uuid, ${now})`);
  return token;
}
