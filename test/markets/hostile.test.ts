// Every route of the read API under hostile values, by a reader with the key and by nobody.

import { expect, it } from "vitest";
import { createSnapshot } from "../../edge/markets/store/listings.ts";
import { describeApi } from "../support/common-routes.ts";
import {
  driveHostile,
  expectBounds,
  expectDeclared,
  type HostileRequest,
  replyOf,
} from "../support/hostile.ts";
import { commitHours, createWorld, HOUR } from "../support/world.ts";

const KEY = "a-reader's key";
const FROM = Date.parse("2026-01-31T00:00:00Z");

it("takes no value for a fault of its own, on any route, whoever asks", async () => {
  const world = await createWorld({
    services: ["markets", "console"],
    environment: { markets: { SERVICE_READ_API_KEY: KEY } },
  });
  await commitHours(world, "erco", FROM, [41_234, 40_871]);
  await commitHours(world, "pjm", FROM, [92_310, 91_644]);
  const asOf = FROM + 12 * HOUR;
  await createSnapshot(world.database, { name: "month-end", note: "", asOf });
  const url = world.urls.markets;
  const document = await describeApi(url);
  const as =
    (credential: Record<string, string>) =>
    async ({ path, headers }: Pick<HostileRequest, "path" | "headers">) =>
      replyOf(await fetch(url + path, { headers: { ...credential, ...headers } }));
  const answers = await driveHostile({
    document,
    fill: (path) => path,
    ask: as({ "X-API-Key": KEY }),
    askStranger: ({ path, headers }) =>
      as({ "X-API-Key": headers.Authorization ?? "" })({ path, headers: {} }),
    others: { nobody: as({}) },
  });
  expect(answers.length).toBeGreaterThan(1_000);
  expectDeclared(answers, document);
  expectBounds(answers, document);
  expect(answers.filter(({ by, status }) => !by && status === 401)).toEqual([]);
}, 300_000);
