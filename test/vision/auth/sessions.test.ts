// Sessions when two things happen at once: what ends one ends it, whatever was on its way.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { TokenPair } from "../../../shared/wire/vision.ts";
import { alterTables, beginTransaction } from "../../support/transactions.ts";
import { ask, freshAddress, PASSWORD, type Person, register } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

const NEW_PASSWORD = "a new long password";

let world: World;
let person: Person;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
});

const post = (path: string, body: unknown, address = freshAddress()) =>
  ask(world.urls.vision, "POST", path, { body, headers: { "CF-Connecting-IP": address } });
const login = (password: string, address?: string) =>
  post("/auth/login", { email: person.email, password }, address);
const change = () => {
  const body = { current_password: PASSWORD, new_password: NEW_PASSWORD };
  return person.ask("POST", "/auth/password", body);
};

it("opens none for a password that was right when it was read, and was changed since", async () => {
  person = await register(world.urls.vision);
  const changing = await beginTransaction(world.visionDatabase);
  await changing.query(`UPDATE account SET session_version = session_version + 1
    WHERE id = '${person.id}'`);
  const late = login(PASSWORD);
  await changing.awaited();
  await changing.commit();
  expect((await late).status).toBe(401);
  expect((await login(PASSWORD)).status).toBe(200);
});

it("changes the password and ends every session, or does neither", async () => {
  person = await register(world.urls.vision);
  await alterTables(
    world.visionDatabase,
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
      AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$`,
    `CREATE TRIGGER refuse BEFORE UPDATE ON refresh_token
      FOR EACH ROW WHEN (NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION refuse()`,
  );
  expect((await change()).status).toBe(500);
  await alterTables(world.visionDatabase, "DROP TRIGGER refuse ON refresh_token");
  expect((await login(NEW_PASSWORD)).status).toBe(401);
  expect((await change()).status).toBe(200);
  const { refresh_token } = person.tokens;
  expect((await post("/auth/refresh", { refresh_token })).status).toBe(401);
});

it("ends one whose next token was made while it was being ended", async () => {
  person = await register(world.urls.vision);
  const { refresh_token: first } = person.tokens;
  const next = TokenPair.parse(
    (await post("/auth/refresh", { refresh_token: first, rotate: true })).body,
  );
  // What is left of both: the statement that ended it could not see the next token.
  await world.visionDatabase.execute(sql`UPDATE refresh_token SET revoked_at = now()
    WHERE account_id = ${person.id}::uuid AND used_at IS NOT NULL`);
  const { refresh_token } = next;
  expect((await post("/auth/refresh", { refresh_token })).status).toBe(401);
});

it("counts guesses from one IPv6 network together, however its addresses are written", async () => {
  person = await register(world.urls.vision);
  const statuses: number[] = [];
  for (const host of ["::1", "::2", ":0:0:0:3", ":a:b:c:d", "::00e", "::f"]) {
    statuses.push((await login("not it, I guess", `2001:db8:0:7${host}`)).status);
  }
  expect(statuses).toEqual([401, 401, 401, 401, 401, 429]);
  expect((await login(PASSWORD, "2001:db8:0:8::1")).status).toBe(200);
});
