// Null in a JSON body is what is not given, on every route of the vision service.

import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { API } from "../../edge/vision/base/api.ts";
import { makeAskers } from "../support/askers.ts";
import { describeApi } from "../support/common-routes.ts";
import { BODIES, BY_BODY, filled, isDevicesOwn } from "../support/everything.ts";
import { driveNulls } from "../support/not-given.ts";
import { ask, register } from "../support/vision.ts";
import { createWorld } from "../support/world.ts";

/** They wait a while for a node, of which there is none here: they are asked of nobody's things. */
const WAITING = /^POST \S+\/(label\/(preview|segment-points)|comparisons\/run|jobs\/\S+\/export)$/;

/** Where a null says something of its own, and what. */
const MEANT: Record<string, string> = {
  "PATCH /annotations/{annotation_id} accepted": "the annotation is pending again",
  "POST /admin/nodes/codes workspace_id": "the node is the installation's",
  "POST /jobs/{job_id}/frames/assign labeler_id": "nobody labels them from now on",
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
  const { owner, ids, fence, deviceId, machineOf } = await makeAskers(world);
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
      const own = isDevicesOwn(declared) ? { device_id: deviceId } : {};
      const full = filled(declared, { ...idsOf(route), ...own }) ?? "";
      const path = `${full}${query && !full.includes("?") ? `?${query}` : ""}`;
      const headers = machineOf(declared);
      // Its answer is the end of who asked.
      const person = declared === "/auth/logout" ? await register(url) : owner;
      const answer = headers
        ? await ask(url, method, path, { body, headers })
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
