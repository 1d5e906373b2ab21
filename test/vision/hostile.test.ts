// Every route of the vision service under hostile values, as the admin of a workspace, a viewer and
// nobody, and as a node.

import { expect, it } from "vitest";
import { API } from "../../edge/vision/base/api.ts";
import { describeApi } from "../support/common-routes.ts";
import { BODIES, BY_BODY, everything, filled, type Ids } from "../support/everything.ts";
import {
  driveHostile,
  expectBounds,
  expectDeclared,
  type HostileOptions,
} from "../support/hostile.ts";
import { registerTestNode } from "../support/nodes.ts";
import { ask, newMember, newTenant, register } from "../support/vision.ts";
import { createWorld } from "../support/world.ts";

/**
 * They wait a while for a node to do its work, which none does here; they end the caller's own
 * session; the health of the service takes nothing.
 */
const SKIPPED =
  /^POST \S+\/(label\/(preview|segment-points)|predict(\/[\w/]+)?|jobs\/\{job_id\}\/export|auth\/(logout|password|refresh))$|healthz/;

it("takes no value for a fault of its own, on any route, whoever asks", async () => {
  const world = await createWorld({ services: ["vision"] });
  const url = world.urls.vision;
  const admin = await register(url);
  const tenant = await newTenant(url, admin, "admin");
  const owner = tenant.member;
  const viewer = await newMember(url, admin, tenant.workspaceId, "viewer");
  const node = await registerTestNode(url, admin);
  const outsider = await newMember(url, admin, tenant.workspaceId, "viewer");
  // A change of role ends its member's tokens: it is nobody's of those who ask.
  const ids: Ids = { ...(await everything(world, tenant)), user_id: outsider.id };
  const claimed = await node.post("/node/claim", { kinds: ["probe"] });
  const { task_id, fence } = (await claimed.json()) as { task_id: string; fence: number };
  ids.task_id = task_id;
  const isNodes = (path: string) => path.startsWith(`${API}/node`);
  const as =
    (person: { ask: typeof owner.ask } | null): HostileOptions["ask"] =>
    ({ method, path, body, headers }) => {
      const own = path.slice(API.length);
      if (isNodes(path)) {
        return ask(url, method, own, { body, headers: { ...node.headers, ...headers } });
      }
      return person
        ? person.ask(method, own, body, headers)
        : ask(url, method, own, { body, headers });
    };
  const document = await describeApi(url);
  const answers = await driveHostile({
    document,
    skipped: SKIPPED,
    fill: (path, given = {}) => {
      const named = path.replace(/\{(\w+)\}/g, (whole, name: string) => given[name] ?? whole);
      const full = filled(named, ids) ?? named.replace(/\{\w+\}/g, "x");
      // A fixture may come with a query; the driver gives its own.
      return full.replace(/\?.*/, "");
    },
    bodyOf: (route, sample) => {
      const own = route.replace(API, "");
      const made = (BODIES[own] ?? BY_BODY[own])?.(ids) ?? sample;
      // A node is heard of a task that it holds.
      return own.startsWith("POST /node/tasks/") ? { ...(made as object), fence } : made;
    },
    ask: as(owner),
    others: [as(viewer), as(null)],
  });
  expect(answers.length).toBeGreaterThan(3_000);
  expectDeclared(answers, document);
  expectBounds(answers, document);
  // Those who are let in on nothing would prove nothing; the code of a new node is never right.
  const refused = answers.filter(({ isKnown, status }) => isKnown && status === 401);
  expect([...new Set(refused.map(({ route }) => route))]).toEqual([`POST ${API}/node/register`]);
}, 600_000);
