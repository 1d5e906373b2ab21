// Workflows in the shape that Roboflow publishes, read as ours: what becomes of each step, and that
// nothing is dropped without a word.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { importRoboflow as imported } from "../../../edge/vision/workflows/roboflow/import.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
/** Imports a definition, of which everything that is taken over passes the check. */
function importRoboflow(definition: unknown) {
  const result = imported(definition);
  expect(result.problems).toEqual([]);
  return result;
}
const image = { type: "WorkflowImage", name: "image" };
const detect = {
  type: "roboflow_core/roboflow_object_detection_model@v2",
  name: "detect",
  images: "$inputs.image",
  model_id: "coco/9",
};
const output = (name: string, selector: string) => ({ type: "JsonField", name, selector });
const property = (name: string) => [{ type: "ExtractDetectionProperty", property_name: name }];
const step = (result: ReturnType<typeof importRoboflow>, id: string) =>
  result.definition?.steps.find((one) => one.id === id);

describe("a workflow of Roboflow's", () => {
  it("that tracks and counts over a line keeps its line, anchors and outputs", () => {
    const result = importRoboflow({
      version: "1.0",
      inputs: [
        image,
        {
          type: "WorkflowParameter",
          name: "Line",
          default_value: [
            [0, 360],
            [1280, 360],
          ],
        },
      ],
      steps: [
        { ...detect, class_filter: ["car"] },
        {
          type: "roboflow_core/byte_tracker@v3",
          name: "track",
          image: "$inputs.image",
          detections: "$steps.detect.predictions",
        },
        {
          type: "roboflow_core/line_counter@v2",
          name: "Count Cars",
          image: "$inputs.image",
          detections: "$steps.track.tracked_detections",
          line_segment: "$inputs.Line",
          triggering_anchor: "BOTTOM_CENTER",
        },
      ],
      outputs: [
        output("count", "$steps.Count Cars.count_in"),
        output("detections", "$steps.track.tracked_detections"),
      ],
    });
    expect(result.unsupported).toEqual([]);
    expect(result.definition).toMatchObject({
      inputs: [
        { name: "image", kind: "image" },
        { name: "line", kind: "line" },
        { name: "model_coco_9", kind: "model", default: "active" },
      ],
      outputs: [
        { name: "count", value: "$steps.count_cars.count_in" },
        { name: "detections", value: "$steps.track.tracks" },
      ],
    });
    expect(step(result, "detect")).toMatchObject({
      type: "detector@1",
      parameters: { model: "$inputs.model_coco_9", confidence: 0.4, classes: ["car"] },
    });
    expect(step(result, "count_cars")).toMatchObject({
      type: "line_counter@1",
      parameters: { line: "$inputs.line", anchors: ["bottom_center"] },
    });
    expect(result.warnings.some((text) => text.includes("coco/9"))).toBe(true);
  });

  it("that filters, crops and detects again has its conditions as expressions and ports", () => {
    const result = importRoboflow({
      inputs: [image, { type: "WorkflowParameter", name: "classes" }],
      steps: [
        detect,
        {
          type: "roboflow_core/detections_filter@v1",
          name: "filter",
          predictions: "$steps.detect.predictions",
          operations: [
            {
              type: "DetectionsFilter",
              filter_operation: {
                type: "StatementGroup",
                operator: "and",
                statements: [
                  {
                    type: "BinaryStatement",
                    left_operand: { type: "DynamicOperand", operations: property("class_name") },
                    comparator: { type: "in (Sequence)" },
                    right_operand: { type: "DynamicOperand", operand_name: "classes" },
                  },
                  {
                    type: "BinaryStatement",
                    negate: true,
                    left_operand: { type: "DynamicOperand", operations: property("size") },
                    comparator: { type: "(Number) <" },
                    right_operand: { type: "StaticOperand", value: 400 },
                  },
                ],
              },
            },
          ],
          operations_parameters: { classes: "$inputs.classes" },
        },
        {
          type: "Crop",
          name: "crop",
          image: "$inputs.image",
          detections: "$steps.filter.predictions",
        },
        { ...detect, name: "second", images: "$steps.crop.crops", model_id: "plates/2" },
        {
          type: "PropertyDefinition",
          name: "names",
          data: "$steps.second.predictions",
          operations: [{ type: "DetectionsPropertyExtract", property_name: "class_name" }],
        },
      ],
      outputs: [output("names", "$steps.names.output"), output("all", "$steps.crop.*")],
    });
    expect(result.unsupported).toEqual([]);
    expect(step(result, "filter")?.parameters).toEqual({
      detections: "$steps.detect.detections",
      classes: "$inputs.classes",
      where: "not (((object.bbox[2] - object.bbox[0]) * (object.bbox[3] - object.bbox[1])) < 400)",
    });
    expect(result.definition?.inputs).toContainEqual({ name: "classes", kind: "list<string>" });
    expect(step(result, "names")?.parameters).toEqual({
      inputs: ["data"],
      expression: "map(data.objects, o0 => o0.class)",
      kind: "list<string>",
      data: "$steps.second.detections",
    });
    expect(result.definition?.outputs.map(({ name }) => name)).toEqual([
      "names",
      "all_crops",
      "all_predictions",
    ]);
  });

  it("that alerts has its gate as the condition of the steps after it, and no secret in it", () => {
    const result = importRoboflow({
      inputs: [image, { type: "WorkflowParameter", name: "token" }],
      steps: [
        {
          type: "roboflow_core/webhook_sink@v1",
          name: "alert",
          url: "https://example.com/alert",
          method: "POST",
          headers: { Authorization: "$inputs.token", "X-Camera": "gate" },
          json_payload: { found: "$steps.detect.predictions", site: "north" },
          json_payload_operations: { found: [{ type: "SequenceLength" }] },
        },
        {
          type: "roboflow_core/continue_if@v1",
          name: "gate",
          condition_statement: {
            type: "StatementGroup",
            statements: [
              {
                type: "BinaryStatement",
                left_operand: {
                  type: "DynamicOperand",
                  operand_name: "left",
                  operations: [{ type: "SequenceLength" }],
                },
                comparator: { type: "(Number) >=" },
                right_operand: { type: "StaticOperand", value: 1 },
              },
            ],
          },
          evaluation_parameters: { left: "$steps.detect.predictions" },
          next_steps: ["$steps.alert"],
        },
        detect,
      ],
      outputs: [output("message", "$steps.alert.message")],
    });
    expect(result.unsupported).toEqual([]);
    expect(step(result, "gate")?.parameters).toMatchObject({
      expression: "(len(left.objects)) >= 1",
      kind: "boolean",
    });
    expect(step(result, "alert")).toMatchObject({
      type: "webhook@1",
      when: ["$steps.gate.value"],
      parameters: {
        url: "https://example.com/alert",
        payload: "$steps.alert__payload.json",
        headers: { "X-Camera": "gate" },
        secret_headers: ["Authorization"],
        header_authorization: "authorization",
        cooldown_seconds: 5,
      },
    });
    expect(step(result, "alert__payload")?.parameters).toMatchObject({
      template: { found: "{{p1}}", site: "north" },
      p1: "$steps.alert__p1.value",
    });
  });

  it("that slices, joins models, draws and uploads becomes steps of the same", () => {
    const result = importRoboflow({
      specification: {
        inputs: [image],
        steps: [
          { type: "roboflow_core/image_slicer@v2", name: "slices", image: "$inputs.image" },
          { ...detect, images: "$steps.slices.slices" },
          {
            type: "roboflow_core/detections_stitch@v1",
            name: "stitch",
            reference_image: "$inputs.image",
            predictions: "$steps.detect.predictions",
          },
          { ...detect, name: "other" },
          {
            type: "roboflow_core/detections_consensus@v1",
            name: "both",
            predictions_batches: ["$steps.stitch.predictions", "$steps.other.predictions"],
            required_votes: 2,
          },
          {
            type: "roboflow_core/bounding_box_visualization@v1",
            name: "boxes",
            image: "$inputs.image",
            predictions: "$steps.both.predictions",
          },
          {
            type: "roboflow_core/roboflow_dataset_upload@v2",
            name: "upload",
            images: "$inputs.image",
            predictions: "$steps.both.predictions",
            target_project: "cars",
            usage_quota_name: "quota",
            data_percentage: 25,
          },
        ],
        outputs: [output("image", "$steps.boxes.image")],
      },
    });
    expect(result.unsupported).toEqual([]);
    expect(result.definition?.steps.map(({ type }) => type)).toEqual([
      "tile@1",
      "detector@1",
      "stitch@1",
      "detector@1",
      "consensus@1",
      "draw_boxes@1",
      "dataset_upload@1",
    ]);
    expect(step(result, "upload")?.parameters).toMatchObject({
      share: 0.25,
      project: "$inputs.project",
    });
    expect(result.definition?.inputs).toContainEqual({ name: "project", kind: "project" });
  });

  it("loses what has no counterpart with all that needs it, and says of each why", () => {
    const result = importRoboflow({
      inputs: [image],
      steps: [
        detect,
        { type: "roboflow_core/clip_model@v1", name: "clip", images: "$inputs.image" },
        {
          type: "roboflow_core/continue_if@v1",
          name: "gate",
          condition_statement: {
            type: "UnaryStatement",
            operand: { type: "DynamicOperand", operand_name: "x" },
            operator: { type: "Exists" },
          },
          evaluation_parameters: { x: "$steps.clip.output" },
          next_steps: ["$steps.alert"],
        },
        { type: "roboflow_core/webhook_sink@v1", name: "alert", url: "https://example.com" },
        {
          type: "roboflow_core/line_counter@v1",
          name: "count",
          detections: "$steps.detect.predictions",
          line_segment: [
            [0, 0],
            [9, 9],
          ],
        },
      ],
      outputs: [
        output("objects", "$steps.detect.predictions"),
        output("count", "$steps.count.count_in"),
      ],
    });
    expect(result.unsupported).toEqual([
      { step: "clip", type: "roboflow_core/clip_model@v1", reason: "there is no block for it" },
      expect.objectContaining({ step: "gate", reason: expect.stringContaining("step clip") }),
      expect.objectContaining({ step: "alert", reason: expect.stringContaining("step gate") }),
      expect.objectContaining({ step: "count", reason: expect.stringContaining("tracker") }),
    ]);
    expect(result.definition?.steps.map(({ id }) => id)).toEqual(["detect"]);
    expect(result.warnings).toContainEqual(expect.stringContaining("output count is left out"));
  });

  const parameter = (name: string, default_value?: unknown) => ({
    type: "WorkflowParameter",
    name,
    default_value,
  });
  it("that compares with nothing, and sends what a sender may not, is told and still checked", () => {
    const { definition, warnings } = importRoboflow({
      inputs: [image],
      steps: [
        detect,
        {
          type: "roboflow_core/continue_if@v1",
          name: "gate",
          condition_statement: {
            type: "BinaryStatement",
            left_operand: { type: "DynamicOperand", operand_name: "nothing" },
            comparator: { type: "==" },
            right_operand: { type: "StaticOperand", value: 1 },
          },
          evaluation_parameters: { nothing: null },
          next_steps: ["$steps.tell"],
        },
        {
          type: "roboflow_core/webhook_sink@v1",
          name: "tell",
          url: "https://name:word@example.com/alert",
          method: "POST",
          headers: { Cookie: "a=b", Host: "other", Connection: "close", "X-Camera": "gate" },
          json_payload: { site: "north" },
        },
      ],
      outputs: [output("objects", "$steps.detect.predictions")],
    });
    const told = ["the header Cookie", "the header Host", "the header Connection", "webhook_url"];
    for (const text of told) {
      expect(warnings).toContainEqual(expect.stringContaining(text));
    }
    expect(JSON.stringify(definition)).not.toContain("word@");
    const tell = definition?.steps.find(({ id }) => id === "tell");
    expect(tell?.parameters).toMatchObject({
      url_secret: "webhook_url",
      headers: { "X-Camera": "gate" },
    });
  });

  it("that segments, resizes, crops by shares and keeps values becomes steps of the same", () => {
    const on = (name: string, type: string, more: object) => ({
      type: `roboflow_core/${type}`,
      name,
      image: "$inputs.image",
      ...more,
    });
    const result = importRoboflow({
      inputs: [image, parameter("words")],
      steps: [
        detect,
        { ...on("boxes", "segment_anything@v1", { boxes: "$steps.detect.predictions" }) },
        on("small", "image_preprocessing@v1", { task_type: "resize", width: 320, height: 240 }),
        {
          ...on("texts", "sam3@v1", { images: "$steps.small.image", threshold: 0.3 }),
          class_names: "$inputs.words",
        },
        on("middle", "relative_statoic_crop@v1", {
          x_center: 0.5,
          y_center: 0.5,
          width: 0.5,
          height: 0.2,
        }),
        on("keep", "cache_set@v1", { key: "last", value: "$steps.detect.predictions" }),
        on("kept", "cache_get@v1", { key: "last" }),
        on("turned", "image_preprocessing@v1", { task_type: "rotate" }),
        on("all", "segment_anything@v1", {}),
      ],
      outputs: [
        output("boxes", "$steps.boxes.predictions"),
        output("texts", "$steps.texts.predictions"),
        output("middle", "$steps.middle.crops"),
        output("keep", "$steps.keep.output"),
        output("kept", "$steps.kept.output"),
      ],
    });
    expect(result.unsupported.map(({ step: name }) => name)).toEqual(["turned", "all"]);
    expect(step(result, "boxes")).toMatchObject({
      type: "segmenter@1",
      parameters: { boxes: "$steps.detect.detections" },
    });
    expect(step(result, "texts")).toMatchObject({
      type: "segmenter@1",
      parameters: { image: "$steps.small.image", prompts: "$inputs.words", threshold: 0.3 },
    });
    expect(result.definition?.inputs).toContainEqual({ name: "words", kind: "list<string>" });
    expect(step(result, "small")?.parameters).toMatchObject({ mode: "stretch", width: 320 });
    expect(step(result, "middle")?.parameters).toMatchObject({
      unit: "share",
      x: 0.25,
      y: 0.4,
      width: 0.5,
    });
    expect(step(result, "keep")).toMatchObject({ type: "key_value_set@1" });
    expect(step(result, "kept")?.parameters).toMatchObject({ key: "last", default: false });
  });

  it("is refused with a reason when it is none, needs itself or is of any other JSON", () => {
    const around = {
      type: "roboflow_core/byte_tracker@v3",
      name: "a",
      detections: "$steps.a.tracked_detections",
    };
    const circle = importRoboflow({ steps: [around], outputs: [output("x", "$steps.a.y")] });
    expect(circle.definition).toBeNull();
    expect(circle.unsupported).toHaveLength(1);
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (value, field) => {
        expect(imported(value).definition).toBeNull();
        const odd = { ...detect, images: field, class_filter: field };
        const gate = {
          type: "ContinueIf",
          name: "g",
          condition_statement: field,
          next_steps: field,
        };
        imported({ inputs: [image], steps: [odd, gate], outputs: [] });
      }),
      { ...seed, numRuns: 100 },
    );
  });
});
