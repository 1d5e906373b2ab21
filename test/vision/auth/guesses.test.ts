// Many guesses at once, from many addresses, at one account. Goal: few of them are checked, an
// address that a client makes up is worth nothing, and the owner gets in all the while.

import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { ask, freshAddress, PASSWORD, register } from "../../support/vision.ts";
import { createWorld } from "../../support/world.ts";

const AT_ONCE = 100;
/** Ten without a wait and four that wait; then one every two seconds that the test takes. */
const CHECKED_MAX = 50;

const loginAt = (url: string, email: string, password: string, address = freshAddress()) =>
  ask(url, "POST", "/auth/login", {
    body: { email, password },
    headers: { "CF-Connecting-IP": address },
  });

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
    const world = await createWorld({
      services: ["vision"],
      environment: { vision: { BEHIND_CLOUDFLARE: "" } },
    });
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

  it("makes few of many accounts at once", async () => {
    const world = await createWorld({
      services: ["vision"],
      environment: { vision: { BEHIND_CLOUDFLARE: "" } },
    });
    const answers = await Promise.all(
      Array.from({ length: AT_ONCE }, (_, index) =>
        ask(world.urls.vision, "POST", "/auth/register", {
          body: { email: `bot${index}@example.com`, password: PASSWORD, display_name: "Bot" },
          headers: { "CF-Connecting-IP": freshAddress() },
        }),
      ),
    );
    const made = answers.filter(({ status }) => status === 201);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201, 429]));
    expect(made.length).toBeLessThan(CHECKED_MAX);
  });
});

describe("behind Cloudflare", () => {
  it("lets the owner in at an address they know, however many guess elsewhere", async () => {
    const world = await createWorld({ services: ["vision"] });
    const url = world.urls.vision;
    const { email } = await register(url);
    const home = freshAddress();
    expect((await loginAt(url, email, PASSWORD, home)).status).toBe(200);
    let isOver = false;
    const storms = (async () => {
      const seen: Awaited<ReturnType<typeof storm>>[] = [];
      do seen.push(await storm(url, email));
      while (!isOver);
      return seen;
    })();
    for (let login = 0; login < 12; login++) {
      expect((await loginAt(url, email, PASSWORD, home)).status).toBe(200);
    }
    isOver = true;
    for (const { checked, refused } of await storms) {
      expect(checked + refused).toBe(AT_ONCE);
      expect(checked).toBeLessThan(CHECKED_MAX);
    }
  });
});
