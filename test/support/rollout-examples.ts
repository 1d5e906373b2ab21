// What the examples of rollouts need to be there before they are sent.

import { EXAMPLES } from "../../edge/vision/description.ts";
import { smallFile } from "./described-files.ts";
import type { Preparation } from "./examples.ts";
import { completedExport } from "./rollout-world.ts";
import type { Api, Person } from "./scripted-node.ts";
import type { World } from "./world.ts";

/** Whom the examples speak of, once they are there. */
interface ExampleWorld {
  world: World;
  admin: Person;
  /** Ids in this world by the text of the description's example. */
  base: Readonly<Record<string, string>>;
  /** A device of the group that rollouts of examples go to. */
  camera: { api: Api; own(path: string): string };
}

const example = (name: string) => String(EXAMPLES[name]);

/** The preparations, by the operation that they are for; and a rollout of its own. */
export function rolloutExamples(of: () => ExampleWorld) {
  let exports = 0;
  const exported = async () => {
    const { world, base } = of();
    const workspaceId = base[example("workspace_id")] ?? "";
    const file = smallFile(`the file of rollout ${++exports}`);
    const more = { name: `cells ${exports}` };
    return (await completedExport(world, workspaceId, file, more)).exportId;
  };
  const begin = async (group: string) => {
    const body = { export_id: await exported(), group };
    return of().admin.ok<{ rollout_id: string }>("POST", "/rollouts", body);
  };
  const replaced = (name: string, here: string): Preparation => ({
    replaced: { [example(name)]: here },
  });
  const newRollout = async (group = "nobody") =>
    replaced("rollout_id", (await begin(group)).rollout_id);
  return {
    newRollout,
    makeRollout: async () => replaced("export_id", await exported()),
    pauseRollout: () => newRollout(),
    resumeRollout: async () => {
      const { rollout_id: id } = await begin("nobody");
      await of().admin.ok("POST", `/rollouts/${id}/pause`);
      return replaced("rollout_id", id);
    },
    abortRollout: () => newRollout(),
    readManifest: async (): Promise<Preparation> => ({ secret: of().camera.api.token }),
    readDeviceArtifact: async (): Promise<Preparation> => {
      const { api, own } = of().camera;
      const signed = await api.ok<{ manifest: string }>("GET", own("manifest"));
      const { version } = JSON.parse(signed.manifest) as { version: string };
      return { ...replaced("readDeviceArtifact.version", version), secret: api.token };
    },
  };
}
