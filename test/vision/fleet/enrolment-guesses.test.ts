// Codes that do not open a device's enrolment: what they cost, and whom they keep waiting.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { ABOUT, createFleetWorld, enrol, type FleetWorld } from "../../support/fleet-world.ts";
import { apiAs } from "../../support/scripted-node.ts";

let w: FleetWorld;
const open = () => apiAs(w.world.urls.vision, "");

beforeAll(async () => {
  w = await createFleetWorld();
});

describe("an enrolment code", () => {
  it("that was used is looked at a few times a minute of an address, and right ones always", async () => {
    const headers = { "CF-Connecting-IP": "203.0.113.9" };
    const { enrolment_code: used } = await w.made();
    await enrol(w.world, used);
    const wrong = { code: used, ...ABOUT };
    const answers = await Promise.all(
      Array.from({ length: 70 }, () => open().send("POST", "/devices/enrol", wrong, headers)),
    );
    const statuses = Map.groupBy(answers, ({ status }) => status);
    expect([...statuses.keys()].sort()).toEqual([401, 429]);
    expect(statuses.get(401)?.length).toBeGreaterThanOrEqual(10);
    expect(statuses.get(429)?.length).toBeGreaterThanOrEqual(10);
    const made = await Promise.all(Array.from({ length: 12 }, () => w.made()));
    const elsewhere = { "CF-Connecting-IP": "203.0.113.10" };
    for (const { enrolment_code: code } of made) {
      const answer = await open().send("POST", "/devices/enrol", { code, ...ABOUT }, elsewhere);
      expect(answer.status).toBe(201);
    }
  });

  it("that somebody made up is refused without the database, and keeps no device waiting", async () => {
    const { enrolment_code: right } = await w.made();
    const random = right.slice(0, -8);
    const madeUp = [
      "vdc_none",
      `vdc_${"x".repeat(30)}`,
      `${random}AAAAAAAA`,
      random,
      `${right}A`,
      "",
    ];
    const asked = async () =>
      (await w.world.visionDatabase.execute(sql`SELECT key FROM throttle`)).rows.length;
    const before = await asked();
    // Neither has an address: all who have none wait in one line.
    const guesses = Array.from({ length: 70 }, (_, n) => madeUp[n % madeUp.length] as string);
    const answers = await Promise.all(
      guesses.map((code) => open().send("POST", "/devices/enrol", { code, ...ABOUT })),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401, 422]));
    expect(await asked()).toBe(before);
    const answer = await open().send("POST", "/devices/enrol", { code: right, ...ABOUT });
    expect(answer.status).toBe(201);
  });
});
