// Many guesses at once, from many addresses, at one account. Goal: few of them are checked, an
// address or a token that a client makes up is worth nothing, and the owner gets in all the while.

import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { describe, expect, it } from "vitest";
import { countRegistration } from "../../../edge/vision/auth/throttle.ts";
import { formerClaims, signAccess } from "../../../edge/vision/auth/tokens.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { Secret } from "../../../shared/secret.ts";
import { DAY, systemClock } from "../../../shared/time.ts";
import { ask, freshAddress, PASSWORD, register } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

const AT_ONCE = 100;
/** Ten without a wait and four that wait; then one every two seconds that the test takes. */
const CHECKED_MAX = 50;

/** Of one instant, without a known address: ten at once, and a turn each for eight seconds. */
const MADE_MAX = 50;

const loginAt = (url: string, email: string, password: string, address = freshAddress()) =>
  ask(url, "POST", "/auth/login", {
    body: { email, password },
    headers: { "CF-Connecting-IP": address },
  });

/** A login of who shows a token of the account as their device's. */
const loginWith = (url: string, body: { email: string; password: string; device: string }) =>
  ask(url, "POST", "/auth/login", { body, headers: { "CF-Connecting-IP": freshAddress() } });

const unproxied = () =>
  createWorld({ services: ["vision"], environment: { vision: { BEHIND_CLOUDFLARE: "" } } });

/** Storms on end, from before `during` until after it; what became of each. */
async function stormWhile(url: string, email: string, during: () => Promise<void>) {
  const seen = [await storm(url, email)];
  let isOver = false;
  const storms = (async () => {
    do seen.push(await storm(url, email));
    while (!isOver);
  })();
  try {
    await during();
  } finally {
    isOver = true;
    await storms;
  }
  return seen;
}

/** Fills a line for long, as a storm does for a moment. */
const fillLine = (world: World, line: string) =>
  world.visionDatabase.execute(sql`
    INSERT INTO throttle (key, attempts, window_ends_at)
    VALUES (${line}, 1, now() + interval '1 hour')
    ON CONFLICT (key) DO UPDATE SET window_ends_at = excluded.window_ends_at`);

/** The statuses of guesses sent at once, each from another address. */
async function storm(url: string, email: string) {
  const replies = await Promise.all(
    Array.from({ length: AT_ONCE }, (_, index) => loginAt(url, email, `guess ${index}`)),
  );
  for (const { status, headers } of replies) {
    if (status === 429) expect(Number(headers.get("Retry-After"))).toBeGreaterThan(0);
  }
  const count = (wanted: number) => replies.filter(({ status }) => status === wanted).length;
  return { checked: count(401), refused: count(429) };
}

describe("where no Cloudflare stands in front", () => {
  it("checks few of many guesses at once, whatever addresses they name", async () => {
    const world = await unproxied();
    const url = world.urls.vision;
    const { email } = await register(url);
    const { checked, refused } = await storm(url, email);
    expect(checked + refused).toBe(AT_ONCE);
    expect(checked).toBeLessThan(CHECKED_MAX);
    // The owner comes again when told to.
    let owner = await loginAt(url, email, PASSWORD);
    while (owner.status === 429) {
      await sleep(1_000 * Number(owner.headers.get("Retry-After")));
      owner = await loginAt(url, email, PASSWORD);
    }
    expect(owner.status).toBe(200);
    // Another account is none of this one's business.
    expect((await loginAt(url, "another@example.com", "x")).status).toBe(401);
  });

  it("lets an owner in who has a token of theirs, in the middle of a storm", async () => {
    const world = await unproxied();
    const url = world.urls.vision;
    const owner = await register(url);
    const { email } = owner;
    // Its session is over, so that the login is needed.
    expect((await owner.ask("POST", "/auth/logout")).status).toBe(204);
    const device = owner.tokens.access_token;
    const seen = await stormWhile(url, email, async () => {
      for (let login = 0; login < 12; login++) {
        expect((await loginWith(url, { email, password: PASSWORD, device })).status).toBe(200);
      }
    });
    for (const { checked, refused } of seen) {
      expect(checked + refused).toBe(AT_ONCE);
      expect(checked).toBeLessThan(CHECKED_MAX);
    }
  });

  it("takes no token that is made up, or another account's, for one of the account", async () => {
    const world = await unproxied();
    const url = world.urls.vision;
    const [owner, other] = [await register(url), await register(url)];
    const { email } = owner;
    const forged = await signAccess(
      { tokenSecret: new Secret("not the service's secret"), clock: Date.now },
      { accountId: owner.id, email, sessionVersion: 1, session: crypto.randomUUID() },
    );
    await fillLine(world, `account ${email}`);
    for (const device of [forged, other.tokens.access_token, owner.tokens.refresh_token, ""]) {
      const reply = await loginWith(url, { email, password: PASSWORD, device });
      expect([device, reply.status]).toEqual([device, 429]);
    }
    const device = owner.tokens.access_token;
    expect((await loginWith(url, { email, password: PASSWORD, device })).status).toBe(200);
  });

  it("lets a caller change their password, however many guess at it", async () => {
    const world = await unproxied();
    const owner = await register(world.urls.vision);
    await fillLine(world, `account ${owner.email}`);
    const body = { current_password: PASSWORD, new_password: "a new long password" };
    expect((await owner.ask("POST", "/auth/password", body)).status).toBe(200);
  });

  it("lets a bounded number make accounts at once, and many a minute", async () => {
    const world = await unproxied();
    const now = systemClock();
    // What counts them has just these of the service's parts.
    const parts = { database: world.visionDatabase, clock: () => now } as Parts;
    const bots = Array.from({ length: AT_ONCE }, (_, index) => `bot${index}@example.com`);
    const counted = await Promise.allSettled(
      bots.map((email) => countRegistration(parts, { email, address: null })),
    );
    const refused = counted.filter(({ status }) => status === "rejected");
    expect(refused).toEqual(
      Array.from({ length: AT_ONCE - MADE_MAX }, () => ({
        status: "rejected",
        reason: expect.objectContaining({ code: "too_many_attempts" }),
      })),
    );
    await register(world.urls.vision);
    await fillLine(world, "register");
    const reply = await ask(world.urls.vision, "POST", "/auth/register", {
      body: { email: "late@example.com", password: PASSWORD, display_name: "Late" },
      headers: { "CF-Connecting-IP": freshAddress() },
    });
    expect([reply.status, reply.body.code]).toEqual([429, "too_many_attempts"]);
  });
});

describe("behind Cloudflare", () => {
  it("lets the owner in at an address they know, however many guess elsewhere", async () => {
    const world = await createWorld({ services: ["vision"] });
    const url = world.urls.vision;
    const { email } = await register(url);
    const home = freshAddress();
    expect((await loginAt(url, email, PASSWORD, home)).status).toBe(200);
    const seen = await stormWhile(url, email, async () => {
      for (let login = 0; login < 12; login++) {
        expect((await loginAt(url, email, PASSWORD, home)).status).toBe(200);
      }
    });
    for (const { checked, refused } of seen) {
      expect(checked + refused).toBe(AT_ONCE);
      expect(checked).toBeLessThan(CHECKED_MAX);
    }
  });

  it("checks as few guesses of who stole a token as of one address, from wherever", async () => {
    const world = await createWorld({ services: ["vision"] });
    const url = world.urls.vision;
    const owner = await register(url);
    const { email } = owner;
    const device = owner.tokens.access_token;
    for (let guess = 0; guess < 5; guess++) {
      const reply = await loginWith(url, { email, password: `guess ${guess}`, device });
      expect(reply.status).toBe(401);
    }
    expect((await loginWith(url, { email, password: PASSWORD, device })).status).toBe(429);
    // The thief is nobody's hindrance but their own.
    expect((await loginAt(url, email, PASSWORD)).status).toBe(200);
  });
});

it("remembers a token half a year after it expired, for its own account", async () => {
  const signedAt = Date.UTC(2026, 0, 1);
  const tokenSecret = new Secret("the service's secret");
  const session = crypto.randomUUID();
  const email = "ada@example.com";
  const token = await signAccess(
    { tokenSecret, clock: () => signedAt },
    { accountId: crypto.randomUUID(), email, sessionVersion: 1, session },
  );
  const sessionAfter = async (days: number, given = { email, token }) => {
    const parts = { tokenSecret, clock: () => signedAt + days * DAY };
    return (await formerClaims(parts, given))?.session ?? null;
  };
  expect(await sessionAfter(0)).toBe(session);
  expect(await sessionAfter(180)).toBe(session);
  expect(await sessionAfter(182)).toBeNull();
  expect(await sessionAfter(0, { email: "bob@example.com", token })).toBeNull();
});
