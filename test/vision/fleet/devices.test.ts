// Devices: how they are made, let in and locked out, what they report and what is made of it. Goal:
// a device reaches what is its own and nothing else, and what it reports harms nobody.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { sha256 } from "../../../edge/vision/auth/digest.ts";
import {
  condenseReadings,
  KEPT_MEANS,
  listReadings,
  takeHeartbeat,
} from "../../../edge/vision/fleet/devices/beats.ts";
import { assert } from "../../../shared/errors.ts";
import { DAY, HOUR, iso, MINUTE } from "../../../shared/time.ts";
import {
  type Device,
  type DeviceReading,
  EnrolledDevice,
  Heartbeat,
  HeartbeatAnswer,
} from "../../../shared/wire/fleet.ts";
import {
  ABOUT,
  createFleetWorld,
  enrol,
  type FleetWorld,
  lines,
  type TestDevice,
} from "../../support/fleet-world.ts";
import { forgetRows } from "../../support/retention.ts";
import { completedExport, workspaceOf } from "../../support/rollout-world.ts";
import { apiAs, newProject } from "../../support/scripted-node.ts";

let w: FleetWorld;
beforeAll(async () => {
  w = await createFleetWorld();
});

const open = () => apiAs(w.world.urls.vision, "");
const token = (device: TestDevice) => device.api.token;
const beat = (device: TestDevice, body: Record<string, unknown> = {}) =>
  device.api.ok<HeartbeatAnswer>("POST", device.own("heartbeat"), body);
/** The functions of the room, at a time that the test decides. */
const partsAt = (now: number) =>
  ({ database: w.world.visionDatabase, clock: () => now }) as Parameters<typeof takeHeartbeat>[0];
const beatAt = async (device: TestDevice, now: number, body: object = {}) => {
  const sender = { deviceId: device.id, tokenHash: await sha256(token(device)) };
  return takeHeartbeat(partsAt(now), sender, Heartbeat.parse(body));
};

describe("a device", () => {
  it("is made by an engineer, and found by group, tag and status", async () => {
    const made = await w.made({ group: "gates", tags: ["north", "north", "day"], interval_s: 30 });
    expect(made).toMatchObject({ status: "never", enrolled_at: null, alerts: [], model: null });
    expect(made.tags).toEqual(["north", "day"]);
    const found = async (query: string) => {
      const { items } = await w.admin.ok<{ items: Device[] }>("GET", `/devices?${query}`);
      return items.some(({ device_id }) => device_id === made.device_id);
    };
    expect(await found("group=gates")).toBe(true);
    expect(await found("group=doors")).toBe(false);
    expect(await found("tag=day")).toBe(true);
    expect(await found("tag=night")).toBe(false);
    expect(await found("status=never")).toBe(true);
    expect(await found("status=online")).toBe(false);
  });

  it("comes in pages, by name", async () => {
    const other = await w.stranger("engineer");
    for (const name of ["c", "a", "b"]) await other.ok("POST", "/devices", { name });
    const page = await other.ok<{ items: Device[] }>("GET", "/devices?limit=2&offset=1");
    expect(page).toMatchObject({ total: 3, offset: 1, limit: 2 });
    expect(page.items.map(({ name }) => name)).toEqual(["b", "c"]);
  });

  it("is renamed and regrouped, and what is not named stays", async () => {
    const made = await w.made({ group: "gates", tags: ["north"] });
    const path = `/devices/${made.device_id}`;
    const changed = await w.admin.ok<Device>("PATCH", path, { name: "east", group: null });
    expect(changed).toMatchObject({ name: "east", group: null, tags: ["north"] });
    const withProject = await w.admin.ok<Device>("PATCH", path, { project_id: w.projectId });
    expect(withProject).toMatchObject({ name: "east", project_id: w.projectId });
  });

  it("goes to no project of another workspace", async () => {
    const other = await w.stranger("engineer");
    const { project_id } = await newProject(other, "theirs");
    const made = { name: "x", workspace_id: w.workspaceId, project_id };
    expect(await w.admin.refused("POST", "/devices", made)).toEqual([404, "not_found"]);
  });

  it("is deleted with its token, and is seen no more", async () => {
    const device = await w.enrolled();
    await device.api.ok("POST", device.own("sync-logs"), { boot_id: "b", lines: lines(1, 3) });
    await w.admin.ok("DELETE", `/devices/${device.id}`);
    expect(await w.admin.refused("GET", `/devices/${device.id}`)).toEqual([404, "not_found"]);
    expect(await w.admin.refused("DELETE", `/devices/${device.id}`)).toEqual([404, "not_found"]);
    expect(await device.api.refused("POST", device.own("heartbeat"), {})).toEqual([
      401,
      "unauthorized",
    ]);
  });
});

describe("an enrolment code", () => {
  it("opens once", async () => {
    const { enrolment_code: code, device_id } = await w.made();
    const enrolled = await enrol(w.world, code);
    expect(enrolled.id).toBe(device_id);
    const again = await open().refused("POST", "/devices/enrol", { code, ...ABOUT });
    expect(again).toEqual([401, "unauthorized"]);
    const device = await w.device(device_id);
    expect(device).toMatchObject({ platform: ABOUT.platform, runtime: ABOUT.runtime });
    expect(device.enrolled_at).not.toBeNull();
  });

  it("is answered again to who comes with the same nonce, and to nobody else", async () => {
    const { enrolment_code: code, device_id } = await w.made();
    const nonce = "n".repeat(43);
    const ask = (more: object) =>
      open().send("POST", "/devices/enrol", { code, ...ABOUT, ...more });
    const first = EnrolledDevice.parse(await (await ask({ nonce })).json());
    expect(first.device_id).toBe(device_id);
    // Its answer is lost, however often: what it says then is what it said first.
    const again = await Promise.all([ask({ nonce }), ask({ nonce })]);
    for (const answer of again) {
      expect(answer.status).toBe(201);
      expect(EnrolledDevice.parse(await answer.json())).toEqual(first);
    }
    expect((await ask({ nonce: "m".repeat(43) })).status).toBe(401);
    expect((await ask({})).status).toBe(401);
    expect((await ask({ nonce: "short" })).status).toBe(422);
    const device = apiAs(w.world.urls.vision, first.token);
    await device.ok("POST", `/devices/${device_id}/heartbeat`, {});
    // What ends the token ends the answer.
    await w.admin.ok("POST", `/devices/${device_id}/revoke`);
    expect((await ask({ nonce })).status).toBe(401);
  });

  it("is answered once to two at once, whose nonces differ", async () => {
    const { enrolment_code: code } = await w.made();
    const answers = await Promise.all(
      ["a", "b", "a", "c"].map((letter) =>
        open().send("POST", "/devices/enrol", { code, ...ABOUT, nonce: letter.repeat(22) }),
      ),
    );
    const tokens = new Set<string>();
    for (const answer of answers) {
      if (answer.status === 201) tokens.add(EnrolledDevice.parse(await answer.json()).token);
      else expect(answer.status).toBe(401);
    }
    expect(tokens.size).toBe(1);
  });

  it("of two at once lets one in", async () => {
    const { enrolment_code: code } = await w.made();
    const body = { code, ...ABOUT };
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => open().send("POST", "/devices/enrol", body)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 401, 401, 401]);
  });

  it("opens for a day, and not when a newer one was made", async () => {
    const { enrolment_code: first, device_id } = await w.made();
    const renewed = `/devices/${device_id}/enrolment`;
    const second = await w.admin.ok<{ enrolment_code: string }>("POST", renewed);
    const opens = (code: string) => open().send("POST", "/devices/enrol", { code, ...ABOUT });
    expect((await opens(first)).status).toBe(401);
    await w.world.visionDatabase.execute(sql`
      UPDATE device_code SET expires_at = now() - interval '1 second'
       WHERE device_id = ${device_id}::uuid`);
    expect((await opens(second.enrolment_code)).status).toBe(401);
  });

  it("brings a device back, and its former token ends", async () => {
    const device = await w.enrolled();
    const renewed = `/devices/${device.id}/enrolment`;
    const { enrolment_code } = await w.admin.ok<{ enrolment_code: string }>("POST", renewed);
    await beat(device);
    const back = await enrol(w.world, enrolment_code);
    expect(back.id).toBe(device.id);
    await beat(back);
    expect((await device.api.send("POST", device.own("heartbeat"), {})).status).toBe(401);
  });

  it("is stored as a hash, like the token", async () => {
    const { enrolment_code: code } = await w.made();
    const device = await enrol(w.world, code);
    const { rows } = await w.world.visionDatabase.execute<{ text: string }>(sql`
      SELECT jsonb_build_array((SELECT jsonb_agg(c) FROM device_code c),
        (SELECT jsonb_agg(t) FROM device_token t), (SELECT jsonb_agg(d) FROM device d))::text AS text`);
    const text = rows[0]?.text ?? "";
    expect(text.length).toBeGreaterThan(100);
    for (const secret of [code, token(device)]) {
      expect(text).not.toContain(secret);
      expect(text).not.toContain(Buffer.from(secret).toString("hex"));
    }
    for (const one of w.world.logs) expect(one).not.toContain(code);
  });
});

describe("a device's token", () => {
  it("opens nothing of another device, of people or of nodes", async () => {
    const [one, other] = [await w.enrolled(), await w.enrolled()];
    const before = await w.device(other.id);
    for (const path of ["heartbeat", "sync-logs", "token"]) {
      const body = path === "sync-logs" ? { boot_id: "b", lines: lines(1, 1) } : {};
      const refused = await one.api.refused("POST", other.own(path), body);
      expect([path, ...refused]).toEqual([path, 404, "not_found"]);
    }
    const image = `${other.own("images")}?boot_id=b&seq=1`;
    expect(await one.api.refused("POST", image, new FormData())).toEqual([404, "not_found"]);
    for (const path of ["/devices", `/devices/${one.id}`, "/projects", "/models", "/targets"]) {
      expect([path, (await one.api.send("GET", path)).status]).toEqual([path, 401]);
    }
    expect((await one.api.send("POST", "/node/claim", { kinds: ["probe"] })).status).toBe(401);
    expect(await w.device(other.id)).toEqual(before);
  });

  it.each([
    ["none", ""],
    ["a forged one", `vdt_${"A".repeat(43)}`],
    ["one of another kind", `vnt_${"A".repeat(43)}`],
    ["a long one", `vdt_${"A".repeat(5_000)}`],
  ])("is 401 where it is %s", async (_, forged) => {
    const device = await w.enrolled();
    const api = apiAs(w.world.urls.vision, forged);
    const statuses = [];
    for (const path of ["heartbeat", "sync-logs", "token", "images?boot_id=b&seq=1"]) {
      statuses.push((await api.send("POST", device.own(path), {})).status);
    }
    expect(statuses).toEqual([401, 401, 401, 401]);
  });

  it("is the only one that opens its next token and its images", async () => {
    const device = await w.enrolled();
    for (const path of ["token", "images?boot_id=b&seq=1", "manifest"]) {
      const method = path === "manifest" ? "GET" : "POST";
      const body = path === "manifest" ? undefined : {};
      const refused = await w.admin.refused(method, device.own(path), body);
      expect([path, ...refused]).toEqual([path, 401, "unauthorized"]);
    }
  });

  it("is rotated with an overlap, and an answer that was lost locks nobody out", async () => {
    const device = await w.enrolled();
    const rotate = async (api = device.api) =>
      apiAs(
        w.world.urls.vision,
        (await api.ok<{ token: string }>("POST", device.own("token"))).token,
      );
    const lost = [await rotate(), await rotate()];
    const next = await rotate();
    // Copies of the request that come late.
    lost.push(await rotate(), await rotate(), await rotate());
    const opens = async (api: TestDevice["api"]) =>
      (await api.send("POST", device.own("heartbeat"), {})).status === 200;
    // Of those that nobody used the oldest ended when others were asked for.
    expect(await opens(lost[0] as TestDevice["api"])).toBe(false);
    expect(await opens(device.api)).toBe(true);
    expect(await opens(next)).toBe(true);
    // Within the overlap both open, afterwards the new one.
    expect(await opens(device.api)).toBe(true);
    await w.world.visionDatabase.execute(sql`
      UPDATE device_token SET expires_at = expires_at - interval '11 minutes'
       WHERE device_id = ${device.id}::uuid`);
    expect([await opens(device.api), await opens(next)]).toEqual([false, true]);
    for (const one of lost) expect(await opens(one)).toBe(false);
    // Nothing is kept of those that ended.
    await rotate(next);
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT FROM device_token WHERE device_id = ${device.id}::uuid`);
    expect(rows).toHaveLength(2);
  });

  it("ends when the device is revoked, which is in the audit log", async () => {
    const device = await w.enrolled();
    const path = `/devices/${device.id}/revoke`;
    await w.admin.ok("POST", path);
    expect((await device.api.send("POST", device.own("heartbeat"), {})).status).toBe(401);
    expect(await w.admin.refused("POST", path)).toEqual([409, "state_conflict"]);
    const query = `subject=device:${device.id}`;
    const { items } = await w.admin.ok<{ items: { action: string }[] }>(
      "GET",
      `/admin/audit?${query}`,
    );
    expect(items.map(({ action }) => action)).toEqual([
      "revokeDevice",
      "enrolDevice",
      "makeDevice",
    ]);
  });
});

describe("a heartbeat", () => {
  it("is shown, with what has no name here as it came", async () => {
    const device = await w.enrolled({ interval_s: 60 });
    const model = { status: "active", slot: "a", version: "3", inferences: 12, note: "warm" };
    const sent = {
      battery: 81,
      temperature: 42.5,
      uptime: 3_600,
      free_bytes: 1e9,
      inference_rate: 9.5,
      agent_version: "1.2.0",
      boot_id: "boot-1",
      model,
      fan: { rpm: [900, null] },
      time: iso(Date.now()),
    };
    const answer = HeartbeatAnswer.parse(await beat(device, sent));
    expect(answer.desired).toBeNull();
    expect(answer.next_s).toBeGreaterThanOrEqual(54);
    expect(answer.next_s).toBeLessThanOrEqual(66);
    expect(Math.abs(answer.clock_skew_s ?? 99)).toBeLessThan(5);
    const { time: _, fan, ...named } = sent;
    const shown = await w.device(device.id);
    expect(shown).toMatchObject({ ...named, status: "online", extra: { fan } });
    const readings = await w.admin.ok<DeviceReading[]>("GET", device.own("heartbeats"));
    expect(readings).toMatchObject([{ beats: 1, battery: 81, temperature: 42.5, uptime: 3_600 }]);
  });

  it("needs nothing but its token", async () => {
    const device = await w.enrolled();
    expect(HeartbeatAnswer.parse(await beat(device)).clock_skew_s).toBeNull();
    expect(await w.device(device.id)).toMatchObject({ status: "online", battery: null });
  });

  it.each([
    { battery: 101 },
    { battery: -1 },
    { battery: "full" },
    { temperature: 1e9 },
    { temperature: -300 },
    { uptime: -1 },
    { free_bytes: 0.5 },
    { inference_rate: 1e9 },
    { time: "yesterday" },
    { boot_id: "a b" },
    { agent_version: "x\u0000" },
    { model: { status: "flying" } },
    { model: { status: "active", scores: [1, 2] } },
    { a: JSON.parse("[".repeat(40) + "]".repeat(40)) },
  ])("that is absurd is 422, and nothing is stored: %j", async (absurd) => {
    const device = await w.enrolled();
    const refused = await device.api.refused("POST", device.own("heartbeat"), absurd);
    expect(refused).toEqual([422, "invalid_request"]);
    expect((await w.device(device.id)).status).toBe("never");
  });

  it("of too many bytes is 413, and of bytes that are no JSON 400", async () => {
    const device = await w.enrolled();
    const long = { note: "x".repeat(20_000) };
    expect(await device.api.refused("POST", device.own("heartbeat"), long)).toEqual([
      413,
      "body_too_large",
    ]);
    const torn = new TextEncoder().encode("{");
    const headers = { "Content-Type": "application/json" };
    const answer = await device.api.refused("POST", device.own("heartbeat"), torn, headers);
    expect(answer).toEqual([400, "bad_body"]);
  });

  it("by a clock that is far off is told so, and believed in nothing", async () => {
    const device = await w.enrolled();
    const answer = await beat(device, { time: "1970-01-01T00:00:00Z" });
    expect(answer.clock_skew_s).toBeLessThan(-1e9);
    // As Python's libraries write UTC and other zones.
    const zoned = await beat(device, { time: "1970-01-01T02:00:00+02:00" });
    expect(Math.abs((zoned.clock_skew_s ?? 0) - (answer.clock_skew_s ?? 0))).toBeLessThan(60);
    const shown = await w.device(device.id);
    expect(shown.clock_skew_s).toBe(zoned.clock_skew_s);
    expect(shown.status).toBe("online");
    expect(Date.parse(shown.last_heartbeat_at ?? "")).toBeGreaterThan(Date.now() - HOUR);
  });

  it("makes a device online, then late, then lost by its own interval", async () => {
    const device = await w.enrolled({ interval_s: 60 });
    const states = [];
    for (const seconds of [10, 120, 180, 570, 660]) {
      await beatAt(device, Date.now() - seconds * 1_000);
      await w.world.visionDatabase.execute(sql`
        UPDATE device_state SET beat_at = now() - ${seconds}::float8 * interval '1 second'
         WHERE device_id = ${device.id}::uuid`);
      states.push((await w.device(device.id)).status);
    }
    expect(states).toEqual(["online", "online", "late", "late", "lost"]);
  });

  it("is heard of by its rollout when it says something else of its own", async () => {
    const group = "heard";
    const device = await w.enrolled({ group });
    const { exportId } = await completedExport(w.world, await workspaceOf(w.admin));
    await w.admin.ok("POST", "/rollouts", { export_id: exportId, group });
    const sender = { deviceId: device.id, tokenHash: await sha256(token(device)) };
    const begun = Math.floor(Date.now() / MINUTE) * MINUTE;
    const say = (model: object | null, second = 0) =>
      takeHeartbeat(partsAt(begun + second * 1_000), sender, Heartbeat.parse({ model }));
    const wanted = (await say(null))?.desired;
    assert(wanted, "the rollout reached its only device");
    const { rollout_id, version } = wanted;
    const heard: unknown[] = [];
    const tell = async (figures: object, second = 0) => {
      await say({ rollout_id, version, ...figures }, second);
      const { rows } = await w.world.visionDatabase.execute(sql`
        SELECT state, inferences::int, reported_at FROM rollout_device
         WHERE device_id = ${device.id}::uuid`);
      heard.push(rows[0]);
    };
    await tell({ status: "downloading" });
    await tell({ status: "downloading" });
    // What moved at once; figures alone once a minute.
    for (const second of [5, 15, 25, 65, 70]) {
      await tell({ status: "active", inferences: second }, second);
    }
    const reports = heard.map((row) => row as { state: string; inferences: number | null });
    expect(reports.map(({ state, inferences }) => [state, inferences])).toEqual([
      ["downloading", 0],
      ["downloading", 0],
      ["active", 5],
      ["active", 5],
      ["active", 5],
      ["active", 65],
      ["active", 65],
    ]);
    // What is no news is not written down again.
    expect(heard[1]).toEqual(heard[0]);
    expect(heard[4]).toEqual(heard[2]);
  });
});

describe("what a device reported", () => {
  it("is kept whole for a day, then as means of quarters, then forgotten", async () => {
    const device = await w.enrolled();
    const start = Date.UTC(2026, 0, 10);
    for (let minute = 0; minute < 30; minute++) {
      await beatAt(device, start + minute * MINUTE, { battery: 100 - minute, temperature: 20 });
    }
    const read = (from: number) =>
      listReadings(partsAt(start), device.id, { from, to: undefined, limit: 1_000 });
    expect(await read(start)).toHaveLength(30);
    await condenseReadings(partsAt(start + DAY + 20 * MINUTE));
    const [first, ...rest] = (await read(start)).toReversed();
    // Minutes 0 to 14: 100 down to 86.
    expect(first).toMatchObject({ at: iso(start), beats: 15, battery: 93, temperature: 20 });
    expect(rest).toHaveLength(15);
    await condenseReadings(partsAt(start + DAY + HOUR));
    expect((await read(start)).map(({ beats, battery }) => [beats, battery])).toEqual([
      [15, 78],
      [15, 93],
    ]);
    await forgetRows(partsAt(start + 31 * DAY), KEPT_MEANS);
    expect(await read(start)).toEqual([]);
  });

  it("becomes means in one minute, however many beats came", async () => {
    const device = await w.enrolled();
    const start = Date.UTC(2026, 2, 1);
    await w.world.visionDatabase.execute(sql`
      INSERT INTO device_beat (device_id, at, battery)
      SELECT ${device.id}::uuid, ${iso(start)}::timestamptz + n * interval '1 second', 50
        FROM generate_series(0, 44999) n`);
    await condenseReadings(partsAt(start + 2 * DAY));
    const means = await listReadings(partsAt(start), device.id, { limit: 1_000 });
    expect(means.map(({ beats }) => beats)).toEqual(Array(50).fill(900));
  });

  it("is one reading in five seconds, however often it comes", async () => {
    const device = await w.enrolled();
    const start = Date.UTC(2026, 1, 1);
    for (let second = 0; second < 12; second++) await beatAt(device, start + second * 1_000);
    const read = await listReadings(partsAt(start), device.id, { limit: 100 });
    expect(read.map(({ at }) => Date.parse(at) - start)).toEqual([10_000, 5_000, 0]);
  });
});

it("lets a viewer look and an engineer change", async () => {
  const device = await w.enrolled();
  const viewer = await w.member("viewer");
  const engineer = await w.member("engineer");
  const path = `/devices/${device.id}`;
  for (const own of ["", "/heartbeats", "/logs"]) await viewer.ok("GET", path + own);
  await viewer.ok("GET", "/devices/alerts");
  await viewer.ok("GET", "/devices/settings");
  const refusals = [
    await viewer.refused("POST", "/devices", { name: "x", workspace_id: w.workspaceId }),
    await viewer.refused("PATCH", path, { name: "x" }),
    await viewer.refused("POST", `${path}/enrolment`),
    await viewer.refused("POST", `${path}/revoke`),
    await viewer.refused("DELETE", path),
    await engineer.refused("PATCH", "/devices/settings", {
      workspace_id: w.workspaceId,
      hot_c: 70,
    }),
  ];
  expect(new Set(refusals.map(String))).toEqual(new Set(["403,forbidden"]));
  await engineer.ok("PATCH", path, { name: "theirs" });
});
