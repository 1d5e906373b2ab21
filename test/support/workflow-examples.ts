// What the examples of workflows need to be there before they are sent.

import { EXAMPLES } from "../../edge/vision/description.ts";
import type { ClaimedTask } from "../../shared/tasks/node-protocol.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import type { Preparation } from "./examples.ts";
import { form, jpeg, mp4 } from "./media.ts";
import type { Api } from "./scripted-node.ts";

/** Whom the examples speak of, once they are there. */
interface ExampleWorld {
  admin: Api;
  /** An engineer of the examples' workspace alone. */
  engineer: Api;
  /** Ids in this world by the text of the description's example. */
  base: Readonly<Record<string, string>>;
}

/** What a node says of the examples' clip. */
export const ranOnClip = (): TaskResult<"workflow_video"> => {
  const step = { elements: 2, masked: 0, cache_hits: 0, ms: 0.2, models: [], warnings: [] };
  return {
    failure: null,
    width: 640,
    height: 360,
    frames: [
      { frame_index: 0, time: 0, outputs: { many: true, image: null } },
      { frame_index: 1, time: 0.04, outputs: { many: true, image: null } },
    ],
    steps: [
      { ...step, step: "many", type: "condition@1" },
      { ...step, step: "seen", type: "continue_if@1" },
    ],
    effects: [],
    state: {},
    left_out: { frames: 0, effects: 0, images: 2 },
    warnings: [],
    seconds: 0.4,
  };
};

/** What a node says of the examples' image, by the active model. */
export function ranOnImage({ payload }: ClaimedTask): TaskResult<"workflow"> {
  const step = { elements: 1, masked: 0, cache_hits: 0, ms: 8.5, models: [], warnings: [] };
  const { models } = payload as TaskPayload<"workflow">;
  const [[asked = "", { model_id = "", name = "", version = 1 } = {}] = []] =
    Object.entries(models);
  const objects = [{ class: "person", confidence: 0.91, bbox: [120, 80, 210, 330] }];
  return {
    failure: null,
    outputs: {
      predictions: { frame: { width: 640, height: 480 }, objects },
      image: `data:image/jpeg;base64,${Buffer.from(jpeg(640, 480, 2).subarray(0, 30)).toString("base64")}`,
    },
    steps: [
      { ...step, step: "detect", type: "detector@1", models: [{ asked, model_id, name, version }] },
      { ...step, step: "boxes", type: "draw_boxes@1" },
      { ...step, step: "labels", type: "draw_labels@1" },
    ],
    effects: [],
    state: {},
    seconds: 0.03,
  };
}

const example = (name: string) => String(EXAMPLES[name]);

/** The preparations, by the operation that they are for; and a deployed workflow of a slug. */
export function workflowExamples(of: () => ExampleWorld) {
  const workspace_id = () => of().base[example("workspace_id")];
  const newWorkflow = async (slug: string, like = "makeWorkflow"): Promise<Preparation> => {
    const { definition } = EXAMPLES[`${like}.body`] as { definition: unknown };
    const body = { slug, name: "Count", workspace_id: workspace_id(), definition };
    await of().admin.ok("POST", "/workflows", body);
    await of().admin.ok("POST", `/workflows/saved/${slug}/deploy`);
    return { replaced: { [example("slug")]: slug } };
  };
  const newRun = async (operation: string): Promise<Preparation> => {
    const { definition } = EXAMPLES["runWorkflowOnVideo.body"] as { definition: object };
    const body = form(["definition", JSON.stringify(definition)], { content: mp4() });
    const made = await of().admin.ok<{ run_id: string }>(
      "POST",
      `/workflows/run/video?workspace_id=${workspace_id()}`,
      body,
    );
    return { replaced: { [example(`${operation}.run_id`)]: made.run_id } };
  };
  return {
    newWorkflow,
    serveWorkflowOnVideo: async (): Promise<Preparation> => {
      await newWorkflow(example("serveWorkflowOnVideo.slug"), "runWorkflow");
      return {};
    },
    runWorkflow: async () => ({ secret: of().engineer.token }),
    runWorkflowOnVideo: async () => ({ secret: of().engineer.token }),
    readWorkflowRun: () => newRun("readWorkflowRun"),
    cancelWorkflowRun: () => newRun("cancelWorkflowRun"),
    deleteWorkflow: () => newWorkflow("spare-count"),
    rollBackWorkflow: async () => {
      const made = await newWorkflow("moved-count");
      await of().admin.ok("DELETE", "/workflows/saved/moved-count");
      return made;
    },
    deleteWorkflowSecret: async (): Promise<Preparation> => {
      const body = { value: "a key", workspace_id: workspace_id() };
      const name = example("deleteWorkflowSecret.name");
      await of().admin.ok("PUT", `/workflows/secrets/${name}`, body);
      return { secret: of().engineer.token };
    },
  };
}
