// Whoever may ask the vision service, each with one of everything to ask about, for tests that walk
// all of its routes.

import { everything, type Ids, isDevicesOwn } from "./everything.ts";
import { enrol } from "./fleet-world.ts";
import { registerTestNode } from "./nodes.ts";
import { newMember, newTenant, type Person, register } from "./vision.ts";
import type { World } from "./world.ts";

/** An installation's admin, a workspace with its owner, and the machines that are at work in it. */
export interface Askers {
  admin: Person;
  workspaceId: string;
  owner: Person;
  /** What is there to be asked about; a person of them is nobody of those who ask. */
  ids: Ids;
  /** The claim of the task that `ids` names. */
  fence: number;
  /** A device of its own: others are revoked and deleted on the way. */
  deviceId: string;
  /** Headers of the machine that alone is heard on a declared path; null where people are. */
  machineOf(path: string): Record<string, string> | null;
}

/** Makes them; the node does work of no other kind than the task that it holds. */
export async function makeAskers(world: World): Promise<Askers> {
  const url = world.urls.vision;
  const admin = await register(url);
  const tenant = await newTenant(url, admin, "admin");
  const { member: owner, workspaceId } = tenant;
  const node = await registerTestNode(url, admin, { kinds: ["probe"] });
  // A change of role ends its member's tokens.
  const outsider = await newMember(url, admin, workspaceId, "viewer");
  const ids: Ids = { ...(await everything(world, tenant)), user_id: outsider.id };
  const claimed = await node.post("/node/claim", { kinds: ["probe"] });
  const { task_id, fence } = (await claimed.json()) as { task_id: string; fence: number };
  ids.task_id = task_id;
  const made = await owner.ask("POST", "/devices", { name: "asker", project_id: ids.project_id });
  const device = await enrol(world, String(made.body.enrolment_code));
  const byDevice = { Authorization: `Bearer ${device.api.token}` };
  return {
    admin,
    workspaceId,
    owner,
    ids,
    fence,
    deviceId: device.id,
    machineOf: (path) => {
      if (path.startsWith("/node")) return node.headers;
      return isDevicesOwn(path.replace(/\?.*/, "")) ? byDevice : null;
    },
  };
}
