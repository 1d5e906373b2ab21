// Messages on their way to webhooks, in tables of their rooms: claimed, tried, tried again. A claim
// moves the next attempt to after the time that this one may take, so that two crons send nothing
// twice; of each receiver's messages, which are a workspace's or the installation's, a few are
// claimed at once, so that one that hangs holds up no other's.

import { type SQL, sql } from "drizzle-orm";
import { HOUR, MINUTE } from "../../../shared/time.ts";
import { performEach } from "../../http/duties.ts";
import type { Parts } from "./parts.ts";
import { instant } from "./sql.ts";

/** Pauses between attempts; after the last one, within a day, a message is given up. */
const PAUSES_MS = [MINUTE, 5 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR] as const;
/** Messages of one receiver, and of all, that one claim takes. */
const OF_RECEIVER_MAX = 20;
const CLAIMED_MAX = 100;
const SENT_AT_ONCE = 6;
/** Longer than all attempts of a claim take. */
const CLAIM_MS = 3 * MINUTE;

/** A table of messages, with the columns `delivery`, `attempts`, `next_at` and `last_error`. */
export interface Outbox {
  table: SQL;
  /** What tells their receivers apart; its column `workspace_id` where nothing is named. */
  receiver?: SQL;
  /** What else is set of a message that is over, at an instant. */
  over?: (now: SQL) => SQL;
}

/** A message as a claim has it. */
export interface ClaimedMessage extends Record<string, unknown> {
  id: string;
  /** That were made, this one among them. */
  attempts: number;
}

/** The parts of a statement that claim what is due; the last one is `claimed`. */
export const claimDue = (
  { table, receiver = sql`workspace_id` }: Outbox,
  now: number,
  among: SQL = sql`true`,
): SQL => sql`
  due AS (
    SELECT id, row_number() OVER (PARTITION BY ${receiver} ORDER BY next_at, id) AS turn
      FROM ${table} WHERE delivery = 'pending' AND next_at <= ${instant(now)} AND ${among}),
  claimed AS (
    UPDATE ${table} SET attempts = attempts + 1, next_at = ${instant(now + CLAIM_MS)}
     WHERE id IN (
       SELECT n.id FROM ${table} n JOIN due ON due.id = n.id
        WHERE due.turn <= ${OF_RECEIVER_MAX}::int AND n.next_at <= ${instant(now)}
        ORDER BY n.next_at LIMIT ${CLAIMED_MAX}::int FOR UPDATE OF n SKIP LOCKED)
    RETURNING *)`;

type OutboxParts = Pick<Parts, "database" | "clock" | "log">;

/**
 * Sends claimed messages, some at once, and writes down what came of each. `send` tries once: null
 * is taken, else it says why not, in words that hold neither address nor secret.
 */
export async function sendClaimed<Message extends ClaimedMessage>(
  parts: OutboxParts,
  outbox: Outbox,
  messages: readonly Message[],
  send: (message: Message) => Promise<string | null>,
): Promise<void> {
  const due = { duty: "messages", items: messages, atOnce: SENT_AT_ONCE };
  await performEach(parts.log, due, async (message) =>
    conclude(parts, outbox, message, await send(message)),
  );
}

async function conclude(
  { database, clock, log }: OutboxParts,
  { table, over }: Outbox,
  { id, attempts }: ClaimedMessage,
  problem: string | null,
): Promise<void> {
  const pause = PAUSES_MS[attempts - 1];
  const now = clock();
  const ended = over ? sql`, ${over(instant(now))}` : sql``;
  const outcome =
    problem === null
      ? sql`delivery = 'delivered'${ended}`
      : pause === undefined
        ? sql`delivery = 'given_up'${ended}`
        : sql`next_at = ${instant(now + pause)}`;
  if (problem !== null) log.warning("message_not_delivered", { id, attempts, problem });
  await database.execute(sql`
    UPDATE ${table} SET ${outcome}, last_error = ${problem}
     WHERE id = ${id}::uuid AND attempts = ${attempts}::int AND delivery = 'pending'`);
}
