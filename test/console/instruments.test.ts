// Instruments as operators see and retire them, over the API and the pages, and the check of the
// flags of stored rows, on a store that a run has filled.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { followRun, operatorAt } from "../../edge/local/operator.ts";
import { Instrument, LateRows } from "../../shared/wire/instruments.ts";
import { consoleSession } from "../support/console-session.ts";
import { type ConsoleWorld, createConsoleWorld } from "../support/console-world.ts";

let world: ConsoleWorld;
beforeAll(async () => {
  world = await createConsoleWorld();
  await followRun(world.operator, await world.operator.launch("grid_region"));
});

const ERCO = "power.demand.erco";
const ask = (path: string, method = "GET", body?: object) =>
  fetch(`${world.urls.console}/api${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${world.operatorToken}`,
      ...(body && { "Content-Type": "application/json" }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
const instruments = async () =>
  Instrument.array().parse(await (await ask("/jobs/grid_region/instruments")).json());
const erco = async () => (await instruments()).find((one) => one.instrument_id === ERCO);
const retire = (id: string, retired: unknown) => ask(`/instruments/${id}`, "PATCH", { retired });
const refusal = async (answer: Response) => [
  answer.status,
  ((await answer.json()) as { code: string }).code,
];

describe("the instruments of a job", () => {
  it("are listed with their newest rows, sorted, for jobs that there are", async () => {
    const listed = await instruments();
    const ids = listed.map(({ instrument_id }) => instrument_id);
    expect(ids.length).toBeGreaterThan(100);
    expect(ids).toEqual(ids.toSorted());
    const { rows } = await world.database.execute<{ newest: string }>(sql`
      SELECT to_char(valid_max AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS newest
        FROM series WHERE library = 'power.demand' AND symbol = 'erco'`);
    expect(await erco()).toEqual({
      instrument_id: ERCO,
      library: "power.demand",
      symbol: "erco",
      newest: rows[0]?.newest,
      retired_at: null,
      retired_by: null,
    });
    expect(await (await ask("/jobs/spot_prices/instruments")).json()).toEqual([]);
    expect(await refusal(await ask("/jobs/nothing/instruments"))).toEqual([404, "unknown_job"]);
  });
});

describe("an instrument", () => {
  it("is retired and watched again by one call each, which may be repeated", async () => {
    for (const retired of [true, true, false, false]) {
      expect((await retire(ERCO, retired)).status).toBe(204);
      expect(await erco()).toMatchObject({
        retired_at: retired ? expect.any(String) : null,
        retired_by: retired ? "operator" : null,
      });
    }
  });

  it("that no check knows is refused, and so is a word that is neither yes nor no", async () => {
    expect(await refusal(await retire("power.demand.nowhere", true))).toEqual([
      404,
      "unknown_instrument",
    ]);
    expect(await refusal(await retire(ERCO, "yes"))).toEqual([422, "invalid_request"]);
    expect(await erco()).toMatchObject({ retired_at: null });
  });

  it("is retired and watched again by the form of the page of checks, which says whom by", async () => {
    const { read, post } = await consoleSession(world.urls.console, world.operatorToken);
    const submit = (id: string, retired: string) =>
      post("/instruments/retire", { instrument_id: id, retired });
    expect((await submit(ERCO, "true")).headers.get("Location")).toContain("/checks");
    expect(await erco()).toMatchObject({ retired_by: "operator" });
    const page = await read("/checks");
    expect(page).toContain(`Watch ${ERCO}`);
    expect(page).toContain("retired by operator");
    expect((await submit("power.demand.nowhere", "true")).status).toBe(404);
    expect((await submit(ERCO, "false")).status).toBe(303);
    expect(await erco()).toMatchObject({ retired_at: null });
  });
});

describe("the check of flags", () => {
  it("names the series with rows that were flagged before the rule, and changes none", async () => {
    const api = operatorAt(world.urls.console, world.operatorToken);
    expect(await api.vintageFlags("grid_region")).toEqual([]);
    // Flagged against the rule.
    const { rows } = await world.owner.execute(sql`
      UPDATE vintage SET reconstructed = false WHERE reconstructed RETURNING series_id`);
    expect(rows.length).toBeGreaterThan(100);
    const found = LateRows.array().parse(await api.vintageFlags("grid_region"));
    const demand = found.find(({ library, symbol }) => `${library}.${symbol}` === ERCO);
    expect(demand?.rows).toBeGreaterThan(100);
    expect(Date.parse(demand?.first ?? "")).toBeLessThan(Date.parse(demand?.last ?? ""));
    expect(await api.vintageFlags("grid_region")).toEqual(found);
    await expect(api.vintageFlags("nothing")).rejects.toThrow(/nothing/);
  });
});
