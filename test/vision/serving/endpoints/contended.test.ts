// Changes of an endpoint that others come before each time they are tried. Goal: who made them is
// told so, of a deletion as of an edit, and nothing was changed.

import { beforeAll, expect, it } from "vitest";
import { registerModel } from "../../../support/registered-model.ts";
import { workspaceOf } from "../../../support/rollout-world.ts";
import { type Person, register } from "../../../support/scripted-node.ts";
import { alterTables } from "../../../support/transactions.ts";
import { createWorld, type World } from "../../../support/world.ts";

const PATH = "/endpoints/gate";
let world: World;
let admin: Person;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  const model = await registerModel(world, await workspaceOf(admin), { classes: ["disc"] });
  await admin.ok("POST", "/endpoints", { slug: "gate", models: [{ model_id: model.model_id }] });
});

it("gives up an edit and a deletion with a 409, and leaves the endpoint as it was", async () => {
  const before = await admin.ok("GET", PATH);
  await alterTables(
    world.visionDatabase,
    "CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    "CREATE TRIGGER stays BEFORE UPDATE ON endpoint FOR EACH ROW EXECUTE FUNCTION stays()",
  );
  const refused = [409, "revision_conflict"];
  expect(await admin.refused("PATCH", PATH, { confidence: 0.6 })).toEqual(refused);
  expect(await admin.refused("DELETE", PATH)).toEqual(refused);
  expect(await admin.ok("GET", PATH)).toEqual(before);
  await alterTables(world.visionDatabase, "DROP TRIGGER stays ON endpoint");
  expect((await admin.send("DELETE", PATH)).status).toBe(204);
});
