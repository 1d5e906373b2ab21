// Every route of the vision service under hostile values: as the admin of a workspace, a member of
// each lesser role and nobody, and as a node and a device.

import { sql } from "drizzle-orm";
import { expect, it } from "vitest";
import { API } from "../../edge/vision/base/api.ts";
import { ROLES, type Role } from "../../shared/wire/vision.ts";
import { makeAskers } from "../support/askers.ts";
import { describeApi } from "../support/common-routes.ts";
import { BODIES, BY_BODY, filled, type Ids, isDevicesOwn } from "../support/everything.ts";
import {
  type Answer,
  driveHostile,
  expectBounds,
  expectDeclared,
  type HostileOptions,
} from "../support/hostile.ts";
import { ask, newMember, PASSWORD, type Person, register } from "../support/vision.ts";
import { createWorld } from "../support/world.ts";

/** The health of the service takes nothing. */
const SKIPPED = /healthz/;
/** They end the session that asks, or are for who has none. */
const ENDING = /^POST \S+\/auth\/(logout|password|refresh|password-reset|me\/delete)$/;

/** A body in order, where the schema alone gives none: too common a password is refused. */
const OWN_BODIES: Record<string, object> = {
  "POST /auth/password": { current_password: PASSWORD, new_password: `${PASSWORD}!` },
};

const LESSER = ROLES.filter((role) => role !== "admin");

/** Whether only a node or a device is heard there. */
const isMachinesOwn = (path: string) =>
  path.startsWith("/node") || isDevicesOwn(path.replace(/\?.*/, ""));

it("takes no value for a fault of its own, on any route, whoever asks", async () => {
  const world = await createWorld({ services: ["vision"] });
  const url = world.urls.vision;
  // Whoever would wait for any other work is told at once that no node does it.
  const { admin, workspaceId, owner, ids, fence, deviceId, machineOf } = await makeAskers(world);
  const members: Partial<Record<Role, Person>> = {};
  for (const role of LESSER) members[role] = await newMember(url, admin, workspaceId, role);
  // A job that runs has no dataset yet: nobody waits for one.
  const names = { names: ["person"], labels: { film_000000: "0 0.5 0.5 0.2 0.2" } };
  const another = { project_id: ids.project_id, yolo: names };
  const imported = (await owner.ask("POST", "/import", another)).body.job as { job_id: string };
  await world.visionDatabase.execute(sql`
    UPDATE job SET state = 'running' WHERE id = ${imported.job_id}::uuid`);
  // Where a redirect leads to is no route of the service.
  const nobody: HostileOptions["ask"] = ({ method, path, body, headers }) =>
    ask(url, method, path.slice(API.length), { body, headers, redirect: "manual" });
  /** Somebody whose session may end; it is another's once it did. */
  let leaving: Person | null = null;
  const as =
    (person: Person): HostileOptions["ask"] =>
    async (request) => {
      const ends = ENDING.test(request.route);
      if (ends) leaving ??= await register(url);
      const { tokens } = ends && leaving ? leaving : person;
      const credential = { Authorization: `Bearer ${tokens.access_token}` };
      const reply = await nobody({ ...request, headers: { ...credential, ...request.headers } });
      if (ends && (reply.status < 300 || reply.status === 429)) leaving = null;
      return reply;
    };
  const asOwner: HostileOptions["ask"] = (request) => {
    const path = request.path.slice(API.length);
    const credential = machineOf(path);
    if (!credential) return as(owner)(request);
    return nobody({ ...request, headers: { ...credential, ...request.headers } });
  };
  const document = await describeApi(url);
  const answers = await driveHostile({
    document,
    skipped: SKIPPED,
    fill: (path, given = {}) => {
      const named = path.replace(/\{(\w+)\}/g, (whole, name: string) => given[name] ?? whole);
      const own: Ids = isDevicesOwn(path.slice(API.length)) ? { device_id: deviceId } : {};
      if (path.endsWith("/jobs/{job_id}/export")) own.job_id = imported.job_id;
      const full = filled(named, { ...ids, ...own }) ?? named.replace(/\{\w+\}/g, "x");
      // A fixture may come with a query; the driver gives its own.
      return full.replace(/\?.*/, "");
    },
    bodyOf: (route, sample) => {
      const own = route.replace(API, "");
      const made = OWN_BODIES[own] ?? (BODIES[own] ?? BY_BODY[own])?.(ids) ?? sample;
      // A node is heard of a task that it holds.
      return own.startsWith("POST /node/tasks/") ? { ...(made as object), fence } : made;
    },
    fieldOf: (name) => ids[name],
    ask: asOwner,
    askStranger: nobody,
    others: {
      ...Object.fromEntries(Object.entries(members).map(([role, one]) => [role, as(one)])),
      nobody,
    },
  });
  expect(answers.length).toBeGreaterThan(3_000);
  expectDeclared(answers, document);
  expectBounds(answers, document);
  expectHeard(answers);
}, 1_800_000);

/** Those who are let in on nothing would prove nothing. */
function expectHeard(answers: readonly Answer[]) {
  const routesOf = (some: readonly Answer[]) => [...new Set(some.map(({ route }) => route))].sort();
  const refused = answers.filter(({ by, status }) => !by && status === 401);
  // The code of a new node or device is never right.
  const codes = ["devices/enrol", "node/register"].map((path) => `POST ${API}/${path}`);
  expect(routesOf(refused).filter((route) => !ENDING.test(route))).toEqual(codes);
  const all = routesOf(answers.filter(({ isOdd }) => !isOdd));
  const isMachines = (route: string) =>
    isMachinesOwn(route.slice(route.indexOf(" ") + 1 + API.length));
  for (const role of LESSER) {
    const own = answers.filter(({ by }) => by === role);
    expect([role, routesOf(own)]).toEqual([role, all]);
    const shut = routesOf(own.filter(({ status }) => status === 401));
    const strange = shut.filter((route) => !isMachines(route) && !ENDING.test(route));
    expect([role, strange]).toEqual([role, []]);
  }
  // A member does what the role may, and nothing of an admin's.
  const done = (role: string, route: string) =>
    answers.some((one) => one.by === role && one.route === route && one.status < 300);
  expect(LESSER.map((role) => done(role, `PATCH ${API}/annotations/{annotation_id}`))).toEqual([
    false,
    true,
    true,
  ]);
}
