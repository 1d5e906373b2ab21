// The first administrator of a deployed vision service. Goal: a token is made while there is none,
// kept as a secret before it is shown, and lets its owner in.

import { expect, inject, it } from "vitest";
import { firstAdminToken } from "../../edge/local/first-admin.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { register } from "../support/vision.ts";
import { createDatabases, createWorld } from "../support/world.ts";

it("registers by the token that was made for it, and no other token is made then", async () => {
  const databases = await createDatabases();
  const { port, credentials } = inject("postgres");
  const name = new URL(databases.visionWriter).pathname.slice(1);
  const owner = superuser(port, credentials.superuser, name);
  const kept: string[] = [];
  const token = await firstAdminToken(owner, (made) => kept.push(made));
  expect(kept).toEqual([token]);
  const environment = { vision: { REGISTRATION: "invited", BOOTSTRAP_TOKEN: token ?? "" } };
  const world = await createWorld({ services: ["vision"], databases, environment });
  await register(world.urls.vision, "first@example.com", token ?? "");
  expect(await firstAdminToken(owner, (made) => kept.push(made))).toBeNull();
  expect(kept).toHaveLength(1);
});
