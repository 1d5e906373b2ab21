// Heartbeats and logs of a device that an engineer sends for it. Goal: an access token does what
// the device's own token does, for whoever may, and leaves that token as it is.

import { beforeAll, describe, expect, it } from "vitest";
import { HeartbeatAnswer } from "../../../shared/wire/fleet.ts";
import { createFleetWorld, type FleetWorld, lines } from "../../support/fleet-world.ts";
import type { Api } from "../../support/scripted-node.ts";

let w: FleetWorld;
beforeAll(async () => {
  w = await createFleetWorld();
});

describe("an access token", () => {
  const reports = (bootId: string) =>
    [
      ["heartbeat", { battery: 55, temperature: 41.5, uptime: 3600, boot_id: bootId }],
      ["sync-logs", { boot_id: bootId, lines: lines(1, 2) }],
    ] as const;

  it.each(["engineer", "admin"] as const)(
    "of an %s of the workspace sends a device's heartbeat and logs, as its own token does",
    async (role) => {
      const member = await w.member(role);
      // A device that never enrolled has no token that could send them.
      const { device_id: id } = await w.made();
      const own = (path: string) => `/devices/${id}/${path}`;
      const [[, beatBody], [, logBody]] = reports("a");
      const answer = HeartbeatAnswer.parse(await member.ok("POST", own("heartbeat"), beatBody));
      expect(answer.next_s).toBeGreaterThan(0);
      expect(await w.device(id)).toMatchObject({
        status: "online",
        battery: 55,
        temperature: 41.5,
        uptime: 3600,
      });
      expect(await member.ok("POST", own("sync-logs"), logBody)).toMatchObject({
        acked_seq: 2,
        stored: 2,
      });
      const { items } = await w.admin.ok<{ items: unknown[] }>("GET", own("logs"));
      expect(items).toHaveLength(2);
      expect(await member.refused("POST", own("heartbeat"), { battery: 900 })).toEqual([
        422,
        "invalid_request",
      ]);
    },
  );

  it("leaves the device's own token as it is", async () => {
    const device = await w.enrolled();
    const engineer = await w.member("engineer");
    for (const [path, body] of reports("b")) {
      await engineer.ok("POST", device.own(path), body);
      await device.api.ok("POST", device.own(path), body);
    }
  });

  it.each(["heartbeat", "sync-logs"])("is refused at %s where it may not", async (path) => {
    const device = await w.enrolled();
    const body = Object.fromEntries(reports("c"))[path];
    const before = await w.device(device.id);
    const asked = (api: Pick<Api, "refused">) => api.refused("POST", device.own(path), body);
    for (const role of ["viewer", "annotator"] as const) {
      expect(await asked(await w.member(role))).toEqual([403, "forbidden"]);
    }
    expect(await asked(await w.stranger("admin"))).toEqual([404, "not_found"]);
    expect(await w.device(device.id)).toEqual(before);
    await w.admin.ok("POST", device.own("revoke"));
    expect(await asked(w.admin)).toEqual([409, "state_conflict"]);
    await w.admin.ok("DELETE", `/devices/${device.id}`);
    expect(await asked(w.admin)).toEqual([404, "not_found"]);
  });
});
