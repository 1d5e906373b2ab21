// The end of a console session by logout, over HTTP as a browser speaks it. Goal: a copy of the
// cookie opens nothing any more, and no other session is touched.

import { beforeAll, expect, it } from "vitest";
import { createWorld, type World } from "../support/world.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});

const request = (path: string, init: RequestInit = {}) =>
  fetch(world.urls.console + path, { redirect: "manual", ...init });

/** A new session, as the header that carries its cookie. */
async function login(): Promise<{ Cookie: string; Accept: string }> {
  const body = new URLSearchParams({ token: world.operatorToken });
  const answer = await request("/login", { method: "POST", body });
  expect(answer.status).toBe(303);
  const cookies = answer.headers.getSetCookie().map((one) => one.split(";")[0]);
  return { Cookie: cookies.join("; "), Accept: "text/html" };
}

it("ends the session wherever a copy of its cookie is, and no other", async () => {
  const [mine, other] = [await login(), await login()];
  const page = await request("/runs", { headers: mine });
  expect([page.status, (await request("/runs", { headers: other })).status]).toEqual([200, 200]);
  const [, token = ""] = /name="form_token" value="([^"]+)"/.exec(await page.text()) ?? [];
  const body = new URLSearchParams({ form_token: token });
  const left = await request("/logout", { method: "POST", body, headers: mine });
  expect([left.status, left.headers.get("Location")]).toEqual([303, "/login"]);
  expect((await request("/runs", { headers: mine })).status).toBe(303);
  expect((await request("/runs", { headers: other })).status).toBe(200);
});
