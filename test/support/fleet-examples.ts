// What examples of devices and targets need to be there.

import { EXAMPLES } from "../../edge/vision/description.ts";
import type { Preparation } from "./examples.ts";
import { enrol, type TestDevice } from "./fleet-world.ts";
import type { Api } from "./scripted-node.ts";

/** The world of the examples, as far as they need it. */
interface ExampleWorld {
  url: string;
  admin: Api;
  /** Makes an endpoint of the active model. */
  newEndpoint(slug: string): Promise<unknown>;
  /** Ids in this world by the text of the description's example. */
  base: Readonly<Record<string, string>>;
}

const example = (name: string) => String(EXAMPLES[name]);
const replaced = (name: string, id: string): Preparation => ({ replaced: { [example(name)]: id } });

/** A device that enrolled, with a project for its images where one is named. */
async function newDevice(
  { url, admin, base }: ExampleWorld,
  name: string,
  project_id: string | null = null,
): Promise<TestDevice> {
  const made = { name, workspace_id: base[example("workspace_id")], project_id };
  const { enrolment_code } = await admin.ok<{ enrolment_code: string }>("POST", "/devices", made);
  return enrol({ urls: { vision: url } }, enrolment_code);
}

/** A target that is another endpoint of this very service; its id. */
async function newTarget(
  { url, admin, newEndpoint, base }: ExampleWorld,
  name: string,
): Promise<string> {
  const slug = `target-${crypto.randomUUID()}`;
  await newEndpoint(slug);
  const { key } = await admin.ok<{ key: string }>("POST", `/endpoints/${slug}/keys`, { name });
  const made = await admin.ok<{ target_id: string }>("POST", "/targets", {
    name,
    workspace_id: base[example("workspace_id")],
    config: { kind: "vantage", url, endpoint: slug },
    credential: key,
  });
  return made.target_id;
}

/** A device that beat and logged, and a target; with their ids by the example's text. */
export async function newFleet(
  world: ExampleWorld,
  projectId: string,
): Promise<{ camera: TestDevice; base: Record<string, string> }> {
  const camera = await newDevice(world, "north gate", projectId);
  const heartbeat = EXAMPLES["sendDeviceHeartbeat.body"] as Record<string, unknown>;
  await camera.api.ok("POST", camera.own("heartbeat"), { ...heartbeat, model: null });
  await camera.api.ok("POST", camera.own("sync-logs"), EXAMPLES["syncDeviceLogs.body"]);
  const target = await newTarget(world, "other instance");
  return {
    camera,
    base: { [example("device_id")]: camera.id, [example("target_id")]: target },
  };
}

/** What operations need to be there beside that; the world is asked for late. */
export function fleetPreparations(
  world: () => ExampleWorld & { camera: TestDevice },
): Record<string, () => Promise<Preparation>> {
  const byCamera = async (): Promise<Preparation> => ({ secret: world().camera.api.token });
  const spareDevice = async () => replaced("device_id", (await newDevice(world(), "spare")).id);
  return {
    enrolDevice: async () => {
      const { admin, base } = world();
      const made = { name: "new", workspace_id: base[example("workspace_id")] };
      const { enrolment_code } = await admin.ok<{ enrolment_code: string }>(
        ...(["POST", "/devices"] as const),
        made,
      );
      const { code } = EXAMPLES["enrolDevice.body"] as { code: string };
      return { replaced: { [code]: enrolment_code } };
    },
    sendDeviceHeartbeat: byCamera,
    syncDeviceLogs: byCamera,
    sendDeviceImage: byCamera,
    rotateDeviceToken: byCamera,
    revokeDevice: spareDevice,
    deleteDevice: spareDevice,
    makeDeviceCode: spareDevice,
    deleteTarget: async () => replaced("target_id", await newTarget(world(), "spare")),
  };
}
