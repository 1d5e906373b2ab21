// The first administrator of a deployed vision service. Goal: its token lets its owner in, and
// whoever deploys sees whether it is there.

import pg from "pg";
import { expect, inject, it } from "vitest";
import { hasAdmin } from "../../edge/local/first-admin.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { randomSecret } from "../../edge/local/state.ts";
import { register } from "../support/vision.ts";
import { createDatabases, createWorld } from "../support/world.ts";

it("registers by the token that was made for it, and is seen then", async () => {
  const databases = await createDatabases();
  const { port, credentials } = inject("postgres");
  const name = new URL(databases.visionWriter).pathname.slice(1);
  const owner = new pg.Client(superuser(port, credentials.superuser, name));
  await owner.connect();
  expect(await hasAdmin(owner)).toBe(false);
  const token = randomSecret();
  const environment = { vision: { REGISTRATION: "invited", BOOTSTRAP_TOKEN: token } };
  const world = await createWorld({ services: ["vision"], databases, environment });
  await register(world.urls.vision, "first@example.com", token);
  expect(await hasAdmin(owner)).toBe(true);
  await owner.end();
});
