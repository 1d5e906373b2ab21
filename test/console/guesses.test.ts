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

async function storm(world: World) {
  const answers = await Promise.all(
    Array.from({ length: AT_ONCE }, (_, index) => guess(world, `guess ${index}`)),
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
