// Tickets: what lets one WebSocket listen to one topic. They live a minute and are good once, since
// they stand in an address; the access token never does.

import { jwtVerify, SignJWT } from "jose";
import { iso, MINUTE } from "../../../../shared/time.ts";
import type { Ticket } from "../../../../shared/wire/progress.ts";
import type { Guest } from "../../auth/guests.ts";
import { keyFor } from "../../auth/tokens.ts";
import { API } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";

const TICKET_MS = MINUTE;
const ALGORITHM = "HS256";
const TYPE = "ticket+jwt";
const ISSUER = "vantage-vision";
const AUDIENCE = "vantage-vision-progress";

type TicketParts = Pick<Parts, "tokenSecret" | "clock">;

/**
 * Lets an account listen to a topic, as long as its session lasts and it is of the workspace; the
 * caller has checked that it may.
 */
export async function issueTicket(
  { tokenSecret, clock }: TicketParts,
  { topic, accountId, session, workspaceId }: Guest & { topic: string },
): Promise<Ticket> {
  const key = await keyFor(tokenSecret, "ticket");
  const seconds = Math.floor(clock() / 1_000);
  const ticket = await new SignJWT({ topic, sid: session, ws: workspaceId })
    .setProtectedHeader({ alg: ALGORITHM, typ: TYPE, kid: key.id })
    .setSubject(accountId)
    .setJti(crypto.randomUUID())
    .setIssuer(ISSUER)
    .setAudience(AUDIENCE)
    .setIssuedAt(seconds)
    .setExpirationTime(seconds + TICKET_MS / 1_000)
    .sign(key.bytes);
  const url = `${API}/progress?ticket=${ticket}`;
  return { ticket, url, expires_at: iso(seconds * 1_000 + TICKET_MS) };
}

/** What a ticket opens. Whether it was used before is known to its topic. */
export interface OpenTicket extends Guest {
  id: string;
  topic: string;
  /** Epoch seconds. */
  expiresAt: number;
}

/** What a ticket opens, or null for one that is expired, forged or none of ours. */
export async function verifyTicket(
  { tokenSecret, clock }: TicketParts,
  ticket: string,
): Promise<OpenTicket | null> {
  const key = await keyFor(tokenSecret, "ticket");
  const verified = await jwtVerify(ticket, key.bytes, {
    algorithms: [ALGORITHM],
    typ: TYPE,
    issuer: ISSUER,
    audience: AUDIENCE,
    requiredClaims: ["sub", "jti", "iat", "exp", "topic", "sid", "ws"],
    currentDate: new Date(clock()),
  }).catch(() => null);
  const { topic, sub, jti, exp, sid, ws } = verified?.payload ?? {};
  if (typeof topic !== "string" || typeof sub !== "string") return null;
  if (typeof jti !== "string" || typeof exp !== "number") return null;
  if (typeof sid !== "string" || typeof ws !== "string") return null;
  return { id: jti, topic, accountId: sub, session: sid, workspaceId: ws, expiresAt: exp };
}
