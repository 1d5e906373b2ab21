// Refusals of the fleet's routes that no other test of it meets. Goal: each is the declared one.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { API } from "../../../edge/vision/base/api.ts";
import { DEVICES_MAX } from "../../../edge/vision/fleet/devices/devices.ts";
import type { Target } from "../../../edge/vision/fleet/targets/records.ts";
import { createFleetWorld, type FleetWorld } from "../../support/fleet-world.ts";
import { announce, fillMemory } from "../../support/full-memory.ts";
import { form, jpeg } from "../../support/media.ts";
import { beginTransaction } from "../../support/transactions.ts";

let w: FleetWorld;
beforeAll(async () => {
  w = await createFleetWorld();
});

const config = { kind: "http", url: "https://example.com", protocol: "roboflow", model: "a/1" };
const target = () =>
  w.admin.ok<Target>("POST", "/targets", { name: "other", workspace_id: w.workspaceId, config });
const image = () => form({ content: Uint8Array.from(jpeg()), filename: "a.jpg" });

it("a device is refused what its routes do not know, and a body that is no JSON", async () => {
  const device = await w.enrolled();
  for (const [method, path] of [
    ["GET", "manifest?etag=1"],
    ["POST", "token?old=1"],
  ] as const) {
    expect(await device.api.refused(method, device.own(path))).toEqual([422, "invalid_request"]);
  }
  const headers = { "Content-Type": "application/json" };
  const url = `${w.world.urls.vision}${API}/devices/enrol`;
  const response = await fetch(url, { method: "POST", headers, body: "{" });
  expect([response.status, await response.json()]).toEqual([
    400,
    expect.objectContaining({ code: "bad_body" }),
  ]);
});

it("a workspace has as many devices and targets as it may have", async () => {
  const other = await w.stranger("admin");
  const body = { name: "one more", workspace_id: other.workspaceId };
  await w.world.visionDatabase.execute(sql`
    INSERT INTO device (id, workspace_id, name, tags, interval_seconds, created_at, updated_at)
    SELECT gen_random_uuid(), ${other.workspaceId}::uuid, 'device ' || n, '{}', 60, now(), now()
      FROM generate_series(1, ${DEVICES_MAX}::int) n`);
  expect(await other.refused("POST", "/devices", body)).toEqual([409, "state_conflict"]);
  await w.world.visionDatabase.execute(sql`
    INSERT INTO target (id, workspace_id, name, config, enabled, next_check_at, created_at,
      updated_at)
    SELECT gen_random_uuid(), ${other.workspaceId}::uuid, 'target ' || n,
      ${JSON.stringify(config)}::jsonb, false, now(), now(), now() FROM generate_series(1, 100) n`);
  expect(await other.refused("POST", "/targets", { ...body, config })).toEqual([
    409,
    "state_conflict",
  ]);
});

it("a target that was changed meanwhile is not changed", async () => {
  const { target_id: id } = await target();
  const others = await beginTransaction(w.world.visionDatabase);
  await others.query(`UPDATE target SET revision = revision + 1 WHERE id = '${id}'`);
  const change = w.admin.refused("PATCH", `/targets/${id}`, { name: "mine" });
  await others.awaited();
  await others.commit();
  expect(await change).toEqual([409, "revision_conflict"]);
});

it("an image for a target is refused for its form, its length, and where memory is full", async () => {
  const { target_id: id } = await target();
  const path = `/targets/${id}/predict`;
  expect(await w.admin.refused("POST", path, {})).toEqual([400, "bad_body"]);
  const { sent, answer } = announce(
    `${w.world.urls.vision}${API}${path}`,
    {
      Authorization: `Bearer ${w.admin.token}`,
      "Content-Type": "multipart/form-data; boundary=x",
    },
    3_000_000_000,
  );
  expect((await answer).status).toBe(413);
  sent.destroy();
  const { project_id } = await w.admin.ok<{ project_id: string }>("POST", "/projects", {
    name: "images",
    workspace_id: w.workspaceId,
  });
  const device = await w.enrolled({ project_id });
  const free = await fillMemory(w.world.urls.vision, w.admin.token);
  try {
    expect(await w.admin.refused("POST", path, image())).toEqual([429, "overloaded"]);
    const line = `${device.own("images")}?boot_id=a&seq=1`;
    expect(await device.api.refused("POST", line, image())).toEqual([429, "overloaded"]);
  } finally {
    free();
  }
});
