// Many guesses at the operator's token at once. Goal: few of them are checked, an address or a mark
// that a client makes up is worth nothing, and the operator gets in all the while.

import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { expect, it } from "vitest";
import { markDevice } from "../../edge/console/session.ts";
import { Secret } from "../../shared/secret.ts";
import { freshAddress } from "../support/vision.ts";
import { createWorld, type World } from "../support/world.ts";

const AT_ONCE = 100;
/** Ten without a wait and four that wait; then one every two seconds that the test takes. */
const CHECKED_MAX = 50;

const guess = (world: World, token: string, address = freshAddress()) =>
  fetch(`${world.urls.console}/login`, {
    method: "POST",
    body: new URLSearchParams({ token }),
    headers: { "CF-Connecting-IP": address },
    redirect: "manual",
  });

/** A login of a browser with this mark. */
const guessFrom = (mark: string, world: World, token: string) =>
  fetch(`${world.urls.console}/login`, {
    method: "POST",
    body: new URLSearchParams({ token }),
    headers: { "CF-Connecting-IP": freshAddress(), Cookie: `vantage_device=${mark}` },
    redirect: "manual",
  });

const ADA = "the-token-of-ada";
const BOB = "the-token-of-bob";

const unproxied = () =>
  createWorld({
    services: ["console"],
    environment: { console: { BEHIND_CLOUDFLARE: "", OPERATOR_TOKENS: `ada:${ADA},bob:${BOB}` } },
  });

/** The mark that a login gives a browser. */
async function markOf(world: World, token: string): Promise<string> {
  const answer = await guess(world, token);
  expect(answer.status).toBe(303);
  const cookie = answer.headers.getSetCookie().find((one) => one.startsWith("vantage_device="));
  expect(cookie).toMatch(/; Path=\/login; HttpOnly; SameSite=Strict$/);
  return /=([^;]*)/.exec(cookie ?? "")?.[1] ?? "";
}

/** Fills every line that there is for long, as a storm does for a moment. */
const fillLines = ({ database }: World) =>
  database.execute(sql`UPDATE wrong_token SET window_ends_at = now() + interval '1 hour'`);

const ask = (world: World, token: string, address = freshAddress()) =>
  fetch(`${world.urls.console}/api/alerts`, {
    headers: { Authorization: `Bearer ${token}`, "CF-Connecting-IP": address },
  });

async function storm(world: World, attempt = guess) {
  const answers = await Promise.all(
    Array.from({ length: AT_ONCE }, (_, index) => attempt(world, `guess ${index}`)),
  );
  const count = (wanted: number) => answers.filter(({ status }) => status === wanted).length;
  return { checked: count(401), refused: count(429) };
}

it("checks few of many guesses at once, and lets the operator in when told to come", async () => {
  const world = await createWorld({
    services: ["console"],
    environment: { console: { BEHIND_CLOUDFLARE: "" } },
  });
  const { checked, refused } = await storm(world);
  expect(checked + refused).toBe(AT_ONCE);
  expect(checked).toBeLessThan(CHECKED_MAX);
  let answer = await guess(world, world.operatorToken);
  while (answer.status === 429) {
    await sleep(1_000 * Number(answer.headers.get("Retry-After")));
    answer = await guess(world, world.operatorToken);
  }
  expect(answer.status).toBe(303);
});

it("lets the operator in at an address they know, behind Cloudflare, during all of it", async () => {
  const world = await createWorld({ services: ["console"] });
  const home = "192.0.2.1";
  expect((await guess(world, world.operatorToken, home)).status).toBe(303);
  const others = storm(world);
  for (let login = 0; login < 12; login++) {
    expect((await guess(world, world.operatorToken, home)).status).toBe(303);
  }
  expect((await others).checked).toBeLessThan(CHECKED_MAX);
});

it("lets an operator in whose browser has a mark, in the middle of a storm", async () => {
  const world = await unproxied();
  const mark = await markOf(world, ADA);
  const seen = [await storm(world)];
  let isOver = false;
  const storms = (async () => {
    do seen.push(await storm(world));
    while (!isOver);
  })();
  try {
    for (let login = 0; login < 12; login++) {
      expect((await guessFrom(mark, world, ADA)).status).toBe(303);
    }
  } finally {
    isOver = true;
    await storms;
  }
  for (const { checked, refused } of seen) {
    expect(checked + refused).toBe(AT_ONCE);
    expect(checked).toBeLessThan(CHECKED_MAX);
  }
});

it("takes no mark that is made up, nor one operator's for another", async () => {
  const world = await unproxied();
  const mark = await markOf(world, ADA);
  await fillLines(world);
  const forged = await markDevice({ name: "ada", token: new Secret("a guess") }, Date.now());
  const renamed = mark.replace(".ada.", ".bob.");
  for (const [other, token] of [
    [forged, ADA],
    [renamed, BOB],
    [mark, BOB],
    ["", ADA],
  ] as const) {
    expect([other, (await guessFrom(other, world, token)).status]).toEqual([other, 429]);
  }
  expect((await guessFrom(mark, world, ADA)).status).toBe(303);
});

it("lets another operator log in where one left a mark", async () => {
  const world = await unproxied();
  const mark = await markOf(world, ADA);
  expect((await guessFrom(mark, world, BOB)).status).toBe(303);
});

it("checks as few guesses of who stole a mark as of one address, from wherever", async () => {
  const world = await createWorld({ services: ["console"] });
  const mark = await markOf(world, world.operatorToken);
  for (let index = 0; index < 10; index++) {
    expect((await guessFrom(mark, world, `guess ${index}`)).status).toBe(401);
  }
  expect((await guessFrom(mark, world, world.operatorToken)).status).toBe(429);
  expect((await guess(world, world.operatorToken)).status).toBe(303);
});

it("counts guesses at the API in the lines of the login, also while an operator asks", async () => {
  const world = await createWorld({ services: ["console"] });
  const home = "192.0.2.2";
  expect((await ask(world, world.operatorToken, home)).status).toBe(200);
  const others = storm(world, ask);
  for (let asked = 0; asked < 12; asked++) {
    expect((await ask(world, world.operatorToken, home)).status).toBe(200);
  }
  const { checked, refused } = await others;
  expect(checked + refused).toBe(AT_ONCE);
  expect(checked).toBeLessThan(CHECKED_MAX);
  const guesses: Response[] = [];
  for (let at = 0; at < 11; at++) guesses.push(await ask(world, `guess ${at}`, home));
  expect(guesses.map(({ status }) => status).at(-1)).toBe(429);
  expect(Number(guesses.at(-1)?.headers.get("Retry-After"))).toBeGreaterThan(0);
  expect((await guess(world, world.operatorToken, home)).status).toBe(429);
});

it("answers an operator who asks much at once, and nothing to who sends no token", async () => {
  const world = await createWorld({
    services: ["console"],
    environment: { console: { BEHIND_CLOUDFLARE: "" } },
  });
  expect((await ask(world, world.operatorToken)).status).toBe(200);
  const statuses = async (token: string) =>
    (await Promise.all(Array.from({ length: AT_ONCE }, () => ask(world, token)))).map(
      ({ status }) => status,
    );
  expect(new Set(await statuses(""))).toEqual(new Set([401]));
  expect(new Set(await statuses(world.operatorToken))).toEqual(new Set([200]));
  // Nor do strangers' guesses keep out a program that was let in before.
  await storm(world, ask);
  expect((await ask(world, world.operatorToken)).status).toBe(200);
});
