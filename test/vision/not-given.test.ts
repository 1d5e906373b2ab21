// Null in a JSON body is what is not given, on every route of the vision service.

import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { API } from "../../edge/vision/base/api.ts";
import { describeApi } from "../support/common-routes.ts";
import {
  BODIES,
  BY_BODY,
  everything,
  filled,
  type Ids,
  isDevicesOwn,
} from "../support/everything.ts";
import { enrol } from "../support/fleet-world.ts";
import { registerTestNode } from "../support/nodes.ts";
import { driveNulls } from "../support/not-given.ts";
import { ask, newMember, newTenant, register } from "../support/vision.ts";
import { createWorld } from "../support/world.ts";

/** They wait a while for a node, of which there is none here: they are asked of nobody's things. */
const WAITING = /^POST \S+\/(label\/(preview|segment-points)|comparisons\/run|jobs\/\S+\/export)$/;

/** Where a null says something of its own, and what. */
const MEANT: Record<string, string> = {
  "PATCH /annotations/{annotation_id} accepted": "the annotation is pending again",
  "POST /admin/nodes/codes workspace_id": "the node is the installation's",
  ...Object.fromEntries(
    ["review", "relabel", "delete"].map((what) => [
      `POST /jobs/{job_id}/annotations/${what} filter.accepted`,
      "refused: it could mean what nobody reviewed, or everything",
    ]),
  ),
  "POST /jobs/{job_id}/annotations/review filter": "refused: without one it is everything",
  "POST /workflows definition.inputs.0.default": "any JSON value is a default, null too",
  "POST /workflows/run definition.inputs.0.default": "likewise",
  "PUT /workflows/saved/{slug} definition.inputs.0.default": "likewise",
};

it("is what is not given in every JSON body, but where it says something of its own", async () => {
  const world = await createWorld({ services: ["vision"] });
  const url = world.urls.vision;
  const admin = await register(url);
  const tenant = await newTenant(url, admin, "admin");
  const owner = tenant.member;
  const node = await registerTestNode(url, admin);
  const outsider = await newMember(url, admin, tenant.workspaceId, "viewer");
  // A change of role ends its member's tokens: it is nobody's of those who ask.
  const ids: Ids = { ...(await everything(world, tenant)), user_id: outsider.id };
  const claimed = await node.post("/node/claim", { kinds: ["probe"] });
  const { task_id, fence } = (await claimed.json()) as { task_id: string; fence: number };
  ids.task_id = task_id;
  const made = await owner.ask("POST", "/devices", { name: "null", project_id: ids.project_id });
  const device = await enrol(world, String(made.body.enrolment_code));
  const nobodys = Object.fromEntries(Object.keys(ids).map((name) => [name, randomUUID()]));
  const idsOf = (route: string) => (WAITING.test(route) ? nobodys : ids);
  const { differences, compared } = await driveNulls({
    document: await describeApi(url),
    bodyOf: (route, documented) => {
      const own = route.replace(API, "");
      const body = (BODIES[own] ?? BY_BODY[own])?.(idsOf(route)) ?? documented;
      if (body instanceof FormData) return undefined;
      // A node is heard of a task that it holds.
      return own.startsWith("POST /node/tasks/") ? { ...(body as object), fence } : body;
    },
    ask: async ({ route, query, body }) => {
      const [method = "", declared = ""] = route.replace(API, "").split(" ");
      const own = isDevicesOwn(declared) ? { device_id: device.id } : {};
      const full = filled(declared, { ...idsOf(route), ...own }) ?? "";
      const path = `${full}${query && !full.includes("?") ? `?${query}` : ""}`;
      const machines = declared.startsWith("/node")
        ? node.headers
        : { Authorization: `Bearer ${device.api.token}` };
      const isMachines = declared.startsWith("/node") || isDevicesOwn(declared);
      // Its answer is the end of who asked.
      const person = declared === "/auth/logout" ? await register(url) : owner;
      const answer = isMachines
        ? await ask(url, method, path, { body, headers: machines })
        : await person.ask(method, path, body);
      expect.soft([route, body, answer.status < 500]).toEqual([route, body, true]);
      const { issues } = (answer.body ?? {}) as { issues?: unknown };
      return { status: answer.status, issues };
    },
  });
  console.info(`nulls: ${compared.length} fields compared`);
  const others = Object.fromEntries(
    Object.entries(differences).filter(([name]) => !(name.replace(API, "") in MEANT)),
  );
  expect(others).toEqual({});
  expect(compared.map((name) => name.replace(API, ""))).toEqual(
    expect.arrayContaining(Object.keys(MEANT)),
  );
  expect(compared.length).toBeGreaterThan(250);
}, 600_000);
