// The node of the API's examples: what it does of each kind of task, as the examples show it.

import type { ClaimedTask } from "../../shared/tasks/node-protocol.ts";
import { TASK_KINDS } from "../../shared/tasks/tasks.ts";
import { jpeg, png } from "./media.ts";
import { comparedBy } from "./model-comparisons.ts";
import { exportedBy } from "./model-exports.ts";
import { JPEG, probeAs, type Script, type ScriptedNode } from "./scripted-node.ts";
import { embedded } from "./search-examples.ts";
import { ranOnClip, ranOnImage } from "./workflow-examples.ts";

/** The object of every frame. */
export const detection = { class_name: "person", bbox: [12, 8, 36, 30], confidence: 0.91 };
const polygon = [12, 8, 36, 8, 36, 30, 12, 30];
/** What a label task comes to: the object on each of its frames. */
export const labeled = (task: ClaimedTask) => ({
  frames: TASK_KINDS.label.payload.parse(task.payload).frames.map((frame_index) => ({
    frame_index,
    detections: [{ ...detection, polygon, duplicate_of: null }],
  })),
  segmenter: "scripted",
  seconds: 0.4,
  warnings: [],
});
const predicted = (frames: number) => ({
  width: 640,
  height: 360,
  left_out: 0,
  seconds: 0.4,
  frames: Array.from({ length: frames }, (_, frame_index) => ({
    frame_index,
    time: frame_index / 10,
    predictions: [{ class: "person", confidence: 0.91, bbox: detection.bbox }],
  })),
});

const segmented = (frames: number) => ({
  segmenter: "scripted",
  warnings: [],
  width: 640,
  height: 360,
  frames: Array.from({ length: frames }, (_, frame_index) => ({
    frame_index,
    time: frame_index / 10,
    findings: [
      {
        prompt: 0,
        confidence: 0.91,
        bbox: detection.bbox,
        mask: { rle: { size: [360, 640], counts: [4328, 22, 226_050] } },
      },
    ],
  })),
  left_out: { frames: 0, objects: 0, masks: 0 },
  seconds: 0.4,
});

/** What the node does of each kind of task; runs and labels are left to the tests. */
export function scriptNode(node: ScriptedNode) {
  const script: Script = {
    probe: probeAs({ frames: 10 }),
    frames: async (task, by) => {
      for (const image of TASK_KINDS.frames.payload.parse(task.payload).images) {
        await by.write(task, { key: image.key }, JPEG);
      }
      return {};
    },
    preview: () => ({
      frames: [
        {
          frame_index: 0,
          detections: [{ ...detection, polygon, duplicate_of: null }],
          image: Buffer.from(jpeg(640, 360, 2).subarray(0, 30)).toString("base64"),
        },
      ],
      segmenter: "scripted",
      warnings: [],
    }),
    segment: () => ({
      masks: [
        {
          png: Buffer.from(png(640, 360).subarray(0, 33)).toString("base64"),
          rle: { size: [360, 640], counts: [4328, 22, 226_050] },
          polygon,
          bbox: detection.bbox,
          score: 0.97,
        },
      ],
      segmenter: "scripted",
    }),
    export: async (task, by) => {
      const { key } = TASK_KINDS.export.payload.parse(task.payload).archive;
      await by.write(task, { key }, "a zip");
      const split = (images: number) => ({
        images,
        background_images: 0,
        annotations: images,
        per_class: [{ class: "car", count: images }],
      });
      const summary = { train: split(4), val: split(1) };
      return {
        bytes: 5,
        summary: { ...summary, annotations_outside_picture: 0, original_images: 0 },
      };
    },
    model_export: exportedBy,
    device_export: exportedBy,
    predict: () => predicted(1),
    comparison: (task, by) => comparedBy(task, by),
    embed: embedded,
    warm: () => ({ seconds: 0.4 }),
    sam: () => segmented(1),
    sam_video: () => segmented(2),
    workflow: ranOnImage,
    workflow_video: ranOnClip,
  };
  Object.assign(node.script, script);
}
