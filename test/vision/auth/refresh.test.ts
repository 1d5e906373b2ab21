// Refresh tokens: one serves a client for 30 days, or is replaced at each use where the client asks
// for that. Goal: a copied token that was replaced ends its session, and no other.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { TokenPair } from "../../../shared/wire/vision.ts";
import { ask, freshAddress, PASSWORD, register } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let url: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  url = world.urls.vision;
});

const post = (path: string, body: unknown) =>
  ask(url, "POST", path, { body, headers: { "CF-Connecting-IP": freshAddress() } });
const login = (email: string, password: string) => post("/auth/login", { email, password });
const me = (token: string) =>
  ask(url, "GET", "/auth/me", { headers: { Authorization: `Bearer ${token}` } });

describe("POST /auth/refresh", () => {
  const refresh = (refresh_token: string) => post("/auth/refresh", { refresh_token });
  const rotate = (refresh_token: string) => post("/auth/refresh", { refresh_token, rotate: true });
  const age = (seconds: number, accountId: string) =>
    world.visionDatabase.execute(sql`UPDATE refresh_token
      SET used_at = used_at - ${seconds}::int * interval '1 second'
      WHERE account_id = ${accountId}::uuid`);

  it("takes the same refresh token again and again until 30 days after the login", async () => {
    const { id, tokens } = await register(url);
    const untilExpiry = async () => {
      const { rows } = await world.visionDatabase.execute<{ days: number; tokens: number }>(sql`
        SELECT extract(epoch FROM min(expires_at) - min(created_at))::float8 / 86400 AS days,
          count(*)::int AS tokens FROM refresh_token WHERE account_id = ${id}::uuid`);
      return rows[0];
    };
    expect(await untilExpiry()).toEqual({ days: 30, tokens: 1 });
    for (let days = 0; days < 29; days += 7) {
      const reply = await refresh(tokens.refresh_token);
      const next = TokenPair.parse(reply.body);
      expect(next).toMatchObject({ refresh_token: tokens.refresh_token, token_type: "bearer" });
      expect((await me(next.access_token)).status).toBe(200);
      await world.visionDatabase.execute(sql`UPDATE refresh_token
        SET created_at = created_at - interval '7 days', expires_at = expires_at - interval '7 days'
        WHERE account_id = ${id}::uuid`);
      expect(await untilExpiry()).toEqual({ days: 30, tokens: 1 });
    }
    expect((await refresh(tokens.refresh_token)).status).toBe(401);
  });

  it("rotates on request: the new token works, the access token is fresh", async () => {
    const { tokens } = await register(url);
    const next = TokenPair.parse((await rotate(tokens.refresh_token)).body);
    expect(next.refresh_token).not.toBe(tokens.refresh_token);
    expect((await me(next.access_token)).status).toBe(200);
    expect((await rotate(next.refresh_token)).status).toBe(200);
  });

  it("answers a repeated rotation alike within the grace, also at once", async () => {
    const { tokens } = await register(url);
    const replies = await Promise.all(
      Array.from({ length: 5 }, () => rotate(tokens.refresh_token)),
    );
    const given = new Set(replies.map(({ body }) => TokenPair.parse(body).refresh_token));
    expect(given.size).toBe(1);
  });

  it.each([
    ["to rotate", rotate],
    ["to refresh", refresh],
  ])("ends the session of a replaced token that comes back later %s", async (_, again) => {
    const { id, tokens } = await register(url);
    const elsewhere = TokenPair.parse(
      (await login((await me(tokens.access_token)).body.email as string, PASSWORD)).body,
    );
    const next = TokenPair.parse((await rotate(tokens.refresh_token)).body);
    await age(11, id);
    const logged = world.logs.length;
    expect(await again(tokens.refresh_token)).toMatchObject({
      status: 401,
      body: { code: "unauthorized" },
    });
    expect((await rotate(next.refresh_token)).status).toBe(401);
    expect((await me(next.access_token)).status).toBe(401);
    // Another session of the same account goes on.
    expect((await me(elsewhere.access_token)).status).toBe(200);
    const since = world.logs.slice(logged);
    expect(since.some((line) => line.includes("refresh_token_reused"))).toBe(true);
  });

  it("refuses what is unknown, expired or no text", async () => {
    const { id, tokens } = await register(url);
    expect((await refresh("nonsense")).status).toBe(401);
    await world.visionDatabase.execute(
      sql`UPDATE refresh_token SET expires_at = now() - interval '1 second'
        WHERE account_id = ${id}::uuid`,
    );
    expect((await refresh(tokens.refresh_token)).status).toBe(401);
    expect((await post("/auth/refresh", { refresh_token: 7 })).status).toBe(422);
    const { refresh_token } = tokens;
    expect((await post("/auth/refresh", { refresh_token, rotate: "yes" })).status).toBe(422);
  });

  it("keeps no token readable in the database or the log", async () => {
    const { tokens } = await register(url);
    await rotate(tokens.refresh_token);
    const { rows } = await world.visionDatabase.execute(
      sql`SELECT encode(hash, 'escape') AS hash FROM refresh_token`,
    );
    expect(JSON.stringify(rows)).not.toContain(tokens.refresh_token);
    const logged = world.logs.join("\n");
    for (const secret of [PASSWORD, tokens.refresh_token, tokens.access_token]) {
      expect(logged).not.toContain(secret);
    }
  });
});
