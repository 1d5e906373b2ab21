// The steps of Roboflow's that have a counterpart here, by their types without the plugin's name,
// and how each becomes steps of ours.

import { z } from "zod";
import { JsonValue } from "../../../../shared/json-value.ts";
import { ANCHORS, type Anchor } from "../../../../shared/workflow/anchors.ts";
import { isKindOf, type Kind, trackedKind } from "../../../../shared/workflow/kinds.ts";
import { LineValue, ZoneValue } from "../../../../shared/workflow/values.ts";
import { FLOW_BLOCKS } from "./flow.ts";
import { IMAGE_STEPS, type Translate } from "./images.ts";
import { NoCounterpart, parseStatement, statement, THE_OBJECT } from "./query.ts";
import { isSelector, type Json, one, type Source, type StepReader } from "./steps.ts";

const share = z.number().min(0).max(1);
const whole = z.int().min(1).max(8_192);
const names = z.array(z.string());
const IMAGE = ["images", "image"];

/** The model of a step: ours are other ones, so an input asks which. */
function modelOf(step: StepReader): string {
  const id = step.raw("model_id");
  if (isSelector(id)) return step.refer(id, "model").reference;
  step.warn(`the model ${String(id)} is not here: an input names one, by default the active one`);
  return step.addInput(`model_${String(id ?? step.id)}`, "model", "active");
}

function detectorParameters(step: StepReader): Record<string, Json | undefined> {
  step.ignore("iou_threshold", "max_detections", "class_agnostic_nms");
  const isCustom = step.raw("confidence_mode") === "custom";
  const confidence = step.port("confidence", "number", share);
  const custom = isCustom ? step.port("custom_confidence", "number", share) : undefined;
  return {
    image: step.source(IMAGE, "image").reference,
    model: modelOf(step),
    // Roboflow's default, which is not ours.
    confidence: confidence ?? custom ?? 0.4,
    classes: step.port("class_filter", "list<string>", names),
  };
}

const detector: Translate = (step) =>
  one(step, "detector@1", {
    parameters: detectorParameters(step),
    outputs: { predictions: ["detections", "detections"] },
  });

const instanceSegmenter: Translate = (step) => {
  step.warn("a detector finds the boxes, and the segmenter the masks in them");
  const { image, ...parameters } = detectorParameters(step);
  const boxes = `${step.id}__boxes`;
  const detected = Object.entries({ image, ...parameters }).filter(
    (entry): entry is [string, Json] => entry[1] !== undefined,
  );
  const masks = one(step, "segmenter@1", {
    parameters: { image, boxes: `$steps.${boxes}.detections` },
    outputs: { predictions: ["masks", "masks"] },
  });
  const first = { id: boxes, type: "detector@1", parameters: Object.fromEntries(detected) };
  return { ...masks, steps: [first, ...masks.steps] };
};

const crop: Translate = (step) => {
  const detections = step.source(["predictions", "detections"], "detections");
  step.ignore("mask_opacity", "background_color");
  return one(step, "crop@1", {
    parameters: {
      image: step.source(IMAGE, "image").reference,
      detections: detections.reference,
    },
    outputs: { crops: ["crops", "image"], predictions: ["detections", detections.kind] },
  });
};

const slicer: Translate = (step) => {
  const [across, down] = ["overlap_ratio_width", "overlap_ratio_height"].map((name) =>
    step.fixed(name, share.max(0.9), 0.2),
  ) as [number, number];
  if (across !== down) step.warn(`tiles overlap by ${across} both ways`);
  return one(step, "tile@1", {
    parameters: {
      image: step.source(IMAGE, "image").reference,
      width: step.fixed("slice_width", whole, 640),
      height: step.fixed("slice_height", whole, 640),
      overlap: across,
    },
    outputs: { slices: ["tiles", "image"] },
  });
};

const stitch: Translate = (step) => {
  const detections = step.source("predictions", "detections");
  const rule = step.fixed("overlap_filtering_strategy", z.enum(["none", "nms", "nmm"]), "nms");
  if (rule === "nmm") step.warn("objects that overlap are left out, not merged");
  const overlap = step.port("iou_threshold", "number", share) ?? 0.3;
  return one(step, "stitch@1", {
    parameters: {
      detections: detections.reference,
      overlap_max: rule === "none" ? 1 : overlap,
      overlap: "union",
    },
    outputs: { predictions: ["detections", detections.kind] },
  });
};

const consensus: Translate = (step) => {
  const given = z
    .array(z.string())
    .min(1)
    .max(8)
    .safeParse(step.raw("predictions_batches", "predictions"));
  if (!given.success) throw new NoCounterpart("it has not one to eight sets of predictions");
  step.ignore("classes_to_consider", "required_objects", "confidence");
  const ports = given.data.map((selector, index) => [
    `detections_${index + 1}`,
    step.refer(selector, "detections").reference,
  ]);
  return one(step, "consensus@1", {
    parameters: {
      ...Object.fromEntries(ports),
      iou: step.port("iou_threshold", "number", share) ?? 0.3,
      votes_min: step.fixed("required_votes", z.int().min(1).max(8), 2),
      class_aware: step.fixed("class_aware", z.boolean(), true),
      confidence: "mean",
    },
    outputs: { predictions: ["detections", "detections"] },
  });
};

const Chain = z.array(z.object({ type: z.string() }).loose()).max(20);
const SORTS: Readonly<Record<string, string>> = {
  confidence: "confidence",
  size: "area",
  center_x: "x",
  center_y: "y",
};

/** Detections after a chain of operations, a step of ours each. */
const detectionsChain: Translate = (step) => {
  const source = step.source("predictions", "detections");
  const chain = Chain.safeParse(step.raw("operations") ?? []);
  if (!chain.success || chain.data.length === 0) throw new NoCounterpart("it has no operations");
  const given = z.record(z.string(), z.unknown()).parse(step.raw("operations_parameters") ?? {});
  let { reference } = source;
  const steps = chain.data.map((operation, index) => {
    const isLast = index === chain.data.length - 1;
    const id = isLast ? step.id : `${step.id}__${index + 1}`;
    const made = detectionsStep(step, operation, given);
    const parameters = { detections: reference, ...made.parameters };
    reference = `$steps.${id}.detections`;
    return { id, type: made.type, parameters };
  });
  return { steps, outputs: { predictions: { reference, kind: source.kind } } };
};

function detectionsStep(
  step: StepReader,
  operation: z.infer<typeof Chain>[number],
  given: Readonly<Record<string, unknown>>,
): { type: string; parameters: Record<string, Json> } {
  if (operation.type === "DetectionsFilter") {
    return { type: "filter@1", parameters: filterOf(step, operation.filter_operation, given) };
  }
  if (operation.type === "SortDetections") {
    const by = SORTS[String(operation.mode)];
    if (!by) throw new NoCounterpart(`sorting by ${String(operation.mode)}`);
    const order = operation.ascending === false ? "descending" : "ascending";
    return { type: "sort@1", parameters: { by, order } };
  }
  if (operation.type === "DetectionsRename") {
    const classes = z.record(z.string(), z.string()).safeParse(operation.class_map);
    if (!classes.success) throw new NoCounterpart("classes that are renamed by a parameter");
    return { type: "class_map@1", parameters: { classes: classes.data, others: "keep" } };
  }
  throw new NoCounterpart(`the operation ${operation.type} on detections`);
}

/** Comparisons of an object's property with a value that only a run knows, by ports of filter@1. */
const PORTS: Readonly<Record<string, readonly [port: string, kind: Kind]>> = {
  "class_name in (Sequence)": ["classes", "list<string>"],
  "confidence (Number) >=": ["confidence_min", "number"],
  "confidence (Number) >": ["confidence_min", "number"],
  "confidence (Number) <=": ["confidence_max", "number"],
  "confidence (Number) <": ["confidence_max", "number"],
};
const PropertyComparison = z.object({
  left_operand: z.object({
    type: z.literal("DynamicOperand"),
    operand_name: z.literal(THE_OBJECT).optional(),
    operations: z.tuple([
      z.object({ type: z.literal("ExtractDetectionProperty"), property_name: z.string() }),
    ]),
  }),
  right_operand: z.object({
    type: z.literal("DynamicOperand"),
    operand_name: z.string(),
    operations: z.array(z.unknown()).max(0).optional(),
  }),
});

function filterOf(
  step: StepReader,
  condition: unknown,
  given: Readonly<Record<string, unknown>>,
): Record<string, Json> {
  const whole = parseStatement(condition);
  const isAnd =
    whole.type === "StatementGroup" && (whole.operator === "and" || whole.statements.length === 1);
  const parts = isAnd ? whole.statements : [condition];
  const parameters: Record<string, Json> = {};
  const rest = parts.filter((part) => {
    const parsed = parseStatement(part);
    const compared = PropertyComparison.safeParse(part);
    if (parsed.type !== "BinaryStatement" || parsed.negate || !compared.success) return true;
    const { left_operand: left, right_operand: right } = compared.data;
    const [port, kind] =
      PORTS[`${left.operations[0].property_name} ${parsed.comparator.type}`] ?? [];
    const value = Object.hasOwn(given, right.operand_name) ? given[right.operand_name] : undefined;
    if (!port || !kind || port in parameters || !isSelector(value)) return true;
    if (/[<>]$/.test(parsed.comparator.type)) step.warn(`${port} counts the bound itself in`);
    parameters[port] = step.refer(value, kind).reference;
    return false;
  });
  if (rest.length > 0) {
    const tests = rest.map((part) =>
      statement(part, (name) => {
        if (name === THE_OBJECT) return { text: "object", of: "detection" };
        throw new NoCounterpart(`the parameter ${name} in this comparison of a filter`);
      }),
    );
    parameters.where =
      tests.length === 1 ? (tests[0] as string) : tests.map((test) => `(${test})`).join(" and ");
  }
  return parameters;
}

/** Steps that draw on an image, or change it where objects are. */
const drawing =
  (
    type: string,
    port: string,
    {
      kind = "detections",
      also = () => ({}),
    }: {
      kind?: Kind;
      also?: (step: StepReader) => Record<string, Json>;
    } = {},
  ): Translate =>
  (step) => {
    step.ignore("color_palette", "custom_colors");
    return one(step, type, {
      parameters: {
        image: step.source(["image", "images"], "image").reference,
        [port]: step.source("predictions", kind).reference,
        ...also(step),
      },
      outputs: { image: ["image", "image"] },
    });
  };

const AXES: Readonly<Record<string, Json>> = { CLASS: "class", TRACK: "track", INDEX: "index" };
const coloured = (step: StepReader): Record<string, Json> => ({
  colour_by:
    AXES[step.fixed("color_axis", z.enum(["CLASS", "TRACK", "INDEX"]), "CLASS")] ?? "class",
});
const LABELS: Readonly<Record<string, Record<string, Json>>> = {
  Class: { parts: ["class"] },
  Confidence: { parts: ["confidence"] },
  "Class and Confidence": { parts: ["class", "confidence"] },
  "Tracker Id": { parts: ["track"] },
  "Time In Zone": { parts: [], field: "seconds_in_zone" },
};
const labels = (step: StepReader): Record<string, Json> => {
  const text = step.fixed("text", z.string(), "Class");
  const known = Object.hasOwn(LABELS, text) ? LABELS[text] : undefined;
  if (!known) step.warn(`labels show the class, not ${text}`);
  return { ...coloured(step), ...(known ?? { parts: ["class"] }) };
};

/** A zone or a line, as a literal or by an input. */
function shapeOf(step: StepReader, field: string, kind: "zone" | "line"): Json {
  const value = step.raw(field);
  // One zone may come in a list of zones.
  const only = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (isSelector(only)) return step.refer(only, kind).reference;
  const parsed = (kind === "zone" ? ZoneValue : LineValue).safeParse(only);
  if (parsed.success) return JsonValue.parse(parsed.data);
  throw new NoCounterpart(`its ${field} is not one ${kind}`);
}

const zoneDrawing =
  (type: string, kind: "zone" | "line"): Translate =>
  (step) =>
    one(step, type, {
      parameters: {
        image: step.source(["image", "images"], "image").reference,
        [kind]: shapeOf(step, "zone", kind),
      },
      outputs: { image: ["image", "image"] },
    });

const tracker: Translate = (step) => {
  step.ignore("minimum_matching_threshold", "minimum_consecutive_frames");
  const { reference, kind } = step.source("detections", "detections");
  const tracked = trackedKind(kind);
  return one(step, "tracker@1", {
    parameters: {
      detections: reference,
      confidence_high: step.fixed("track_activation_threshold", share, 0.25),
      lost_frames_max: step.fixed("lost_track_buffer", z.int().min(0).max(10_000), 30),
    },
    outputs: {
      tracked_detections: ["tracks", tracked],
      new_instances: ["new_tracks", tracked],
      already_seen_instances: ["known_tracks", tracked],
    },
  });
};

/** The anchors that a step names; of none, those that its type has by itself. */
function anchorsOf(step: StepReader, fallback: Anchor[]): Anchor[] {
  if (step.raw("triggering_anchor") === undefined) return fallback;
  const given = step.fixed("triggering_anchor", z.string(), "CENTER").toLowerCase();
  const anchor = ANCHORS.find((known) => known === given);
  if (!anchor) step.warn(`the center stands for the anchor ${given}`);
  return [anchor ?? "center"];
}

function tracksOf(step: StepReader): Source {
  const source = step.source("detections", "detections");
  if (isKindOf(source.kind, "tracks")) return source;
  throw new NoCounterpart("its detections have no tracks: a tracker must come before it");
}

const CORNERS: Anchor[] = ["top_left", "top_right", "bottom_left", "bottom_right"];
const lineCounter =
  (anchors: Anchor[]): Translate =>
  (step) => {
    const { reference, kind } = tracksOf(step);
    return one(step, "line_counter@1", {
      parameters: {
        tracks: reference,
        line: shapeOf(step, "line_segment", "line"),
        anchors: anchorsOf(step, anchors),
      },
      outputs: {
        count_in: ["count_in", "integer"],
        count_out: ["count_out", "integer"],
        detections_in: ["crossed_in", kind],
        detections_out: ["crossed_out", kind],
      },
    });
  };

const timeInZone: Translate = (step) => {
  const { reference, kind } = tracksOf(step);
  return one(step, "time_in_zone@1", {
    parameters: {
      tracks: reference,
      zone: shapeOf(step, "zone", "zone"),
      anchors: anchorsOf(step, ["center"]),
      reset_on_exit: step.fixed("reset_out_of_zone_detections", z.boolean(), true),
      keep_outside: !step.fixed("remove_out_of_zone_detections", z.boolean(), true),
    },
    outputs: { timed_detections: ["tracks", kind] },
  });
};

const velocity: Translate = (step) => {
  const { reference, kind } = tracksOf(step);
  return one(step, "velocity@1", {
    parameters: {
      tracks: reference,
      pixels_per_unit: step.port("pixels_per_meter", "number", z.number().positive()),
      smoothing: Math.min(0.99, 1 - step.fixed("smoothing_alpha", share, 0.5)),
    },
    outputs: { velocity_detections: ["tracks", kind] },
  });
};

const codes =
  (formats: Json | undefined): Translate =>
  (step) =>
    one(step, "barcode@1", {
      parameters: { image: step.source(IMAGE, "image").reference, formats },
      outputs: { predictions: ["detections", "detections"] },
    });

const table = (translate: Translate, ...types: string[]): [string, Translate][] =>
  types.map((type) => [type, translate]);

/** Names such as `byte_tracker@v3`, and the ones that definitions had before these. */
export const ROBOFLOW_BLOCKS: ReadonlyMap<string, Translate> = new Map([
  ...table(
    detector,
    ...[1, 2, 3].map((version) => `roboflow_object_detection_model@v${version}`),
    ...["RoboflowObjectDetectionModel", "ObjectDetectionModel"],
  ),
  ...table(
    instanceSegmenter,
    ...[1, 2, 3, 4].map((version) => `roboflow_instance_segmentation_model@v${version}`),
    ...["RoboflowInstanceSegmentationModel", "InstanceSegmentationModel"],
  ),
  ...table(crop, "dynamic_crop@v1", "DynamicCrop", "Crop"),
  ...table(slicer, "image_slicer@v1", "image_slicer@v2"),
  ...table(stitch, "detections_stitch@v1"),
  ...table(consensus, "detections_consensus@v1", "DetectionsConsensus"),
  ...table(
    detectionsChain,
    ...["detections_filter@v1", "DetectionsFilter"],
    ...["detections_transformation@v1", "DetectionsTransformation"],
  ),
  ...table(
    drawing("draw_boxes@1", "detections", { also: coloured }),
    ...["bounding_box_visualization@v1", "BoundingBoxVisualization"],
  ),
  ...table(
    drawing("draw_labels@1", "detections", { also: labels }),
    ...["label_visualization@v1", "LabelVisualization"],
  ),
  ...table(
    drawing("draw_masks@1", "masks", { kind: "masks", also: coloured }),
    ...["mask_visualization@v1", "MaskVisualization"],
    ...["polygon_visualization@v1", "PolygonVisualization"],
  ),
  ...table(drawing("draw_tracks@1", "tracks", { kind: "tracks" }), "trace_visualization@v1"),
  ...table(
    drawing("blur@1", "detections", { also: () => ({ mode: "gaussian" }) }),
    "blur_visualization@v1",
    "BlurVisualization",
  ),
  ...table(
    drawing("blur@1", "detections", { also: () => ({ mode: "pixelate" }) }),
    "pixelate_visualization@v1",
    "PixelateVisualization",
  ),
  ...table(zoneDrawing("draw_zones@1", "zone"), "polygon_zone_visualization@v1"),
  ...table(zoneDrawing("draw_lines@1", "line"), "line_counter_visualization@v1"),
  ...table(tracker, ...[1, 2, 3].map((version) => `byte_tracker@v${version}`)),
  ...table(lineCounter(["center"]), "line_counter@v1"),
  ...table(lineCounter(CORNERS), "line_counter@v2"),
  ...table(timeInZone, ...[1, 2, 3].map((version) => `time_in_zone@v${version}`)),
  ...table(velocity, "velocity@v1"),
  ...table(codes(["qr_code"]), "qr_code_detector@v1", "QRCodeDetector", "QRCodeDetection"),
  ...table(codes(undefined), "barcode_detector@v1", "BarcodeDetector", "BarcodeDetection"),
  ...IMAGE_STEPS,
  ...FLOW_BLOCKS,
]);
