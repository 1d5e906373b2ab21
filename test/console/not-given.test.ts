// Null in a JSON body is what is not given, on every route of the operator API.

import { expect, it } from "vitest";
import { describeApi } from "../support/common-routes.ts";
import { replyOf } from "../support/hostile.ts";
import { driveNulls } from "../support/not-given.ts";
import { createWorld, onlySchedules } from "../support/world.ts";

it("is what is not given in every JSON body", async () => {
  // No sandbox and no key: launched runs fail by themselves, which is all these routes need.
  const world = await createWorld({ services: ["markets", "console"] });
  await onlySchedules(world, []);
  const headers = {
    Authorization: `Bearer ${world.operatorToken}`,
    "Content-Type": "application/json",
  };
  const { differences, compared } = await driveNulls({
    document: await describeApi(world.urls.console),
    bodyOf: (_, documented) => documented,
    ask: async ({ route, body }) => {
      const [method = "", path = ""] = route.split(" ");
      const url = world.urls.console + path.replace(/\{\w+\}/g, "grid_region");
      const { status, body: answer } = await replyOf(
        await fetch(url, { method, headers, body: JSON.stringify(body) }),
      );
      expect([route, body, status < 500]).toEqual([route, body, true]);
      return { status, issues: (answer as { issues?: unknown } | null)?.issues };
    },
  });
  expect(differences).toEqual({});
  expect(compared.sort()).toEqual([
    "POST /api/backfills idempotency_key",
    "POST /api/runs partition",
    "POST /api/snapshots as_of",
    "POST /api/snapshots note",
  ]);
});
