// Many guesses at the operator's token at once. Goal: few of them are checked, an address that a
// client makes up is worth nothing, and the operator gets in all the while.

import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
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
});
