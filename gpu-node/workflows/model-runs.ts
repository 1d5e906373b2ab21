// What the blocks do that ask models: detectors of the registry, opened as predictions open them,
// so that all elements of a run fill one batch; and segmenters, in the words of a request for one.

import type { z } from "zod";
import type { SamPrompt, SamRequest, SamResult } from "../../shared/tasks/sam.ts";
import type { Bbox, ModelSource, Point, Prediction } from "../../shared/tasks/tasks.ts";
import type { ResolvedModel } from "../../shared/tasks/workflow-task.ts";
import { BlockFailure, type RunBlock } from "../../shared/workflow/block.ts";
import {
  type SegmenterParameters,
  segmenterModel,
} from "../../shared/workflow/blocks/model-blocks.ts";
import type { ClickValue, Detections, WorkflowObject } from "../../shared/workflow/values.ts";
import { clip } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import type { Predictors } from "../serving/predictors.ts";
import { blockRun, boxOn, type NodeImage, pointOn } from "./node-image.ts";

/** What the blocks with models work with. */
export interface ModelServices {
  predictors: Pick<Predictors, "use">;
  /** Has a segmenter look at an image. */
  sam(
    readImage: () => Promise<RgbImage>,
    request: SamRequest,
    signal: AbortSignal,
  ): Promise<SamResult>;
  /** Models of the run, by what it calls them. */
  models: Readonly<Record<string, ResolvedModel>>;
}

/** The blocks of a run, by type. */
export const modelRuns = (services: ModelServices): ReadonlyMap<string, RunBlock> =>
  new Map([
    ["detector@1", detector(services)],
    ["segmenter@1", segmenter(services)],
  ]);

function checkConfidence(confidence: number): void {
  if (confidence >= 0 && confidence <= 1) return;
  throw new BlockFailure(`confidence is ${confidence}; it must be between 0 and 1`);
}

interface DetectorInputs {
  image: NodeImage;
  model: string;
  confidence: number;
  classes?: readonly string[];
}

const detector = ({ predictors, models }: ModelServices): RunBlock =>
  blockRun<DetectorInputs>(async ({ inputs, signal }) => {
    const { image, model: asked, confidence, classes } = inputs;
    checkConfidence(confidence);
    const model = Object.hasOwn(models, asked) ? models[asked] : undefined;
    if (!model) throw new BlockFailure(`the model ${asked} is none that this run was given`);
    const unknown = classes?.find((name) => !model.source.classes.includes(name));
    if (unknown !== undefined) throw noSuchClass(unknown, model.source);
    const confidenceMin = Math.max(confidence, model.told?.confidence ?? 0);
    const predictions = await predictors.use(model.source, signal, (predictor) =>
      predictor.predict(image.pixels, { confidence: confidenceMin, signal }),
    );
    const filters = [classes, model.told?.classes].filter((one) => one != null);
    const objects: Prediction[] = predictions.filter((one) =>
      filters.every((names) => names.includes(one.class)),
    );
    const { model_id, name, version } = model;
    return {
      outputs: { detections: { frame: image.frame, objects }, count: objects.length },
      models: [{ asked, model_id, name, version }],
    };
  });

const noSuchClass = (name: string, { classes }: ModelSource) =>
  new BlockFailure(
    `the model has no class ${name.slice(0, 100)}; it has ${classes.join(", ").slice(0, 500)}`,
  );

interface SegmenterInputs {
  image: NodeImage;
  prompts?: readonly string[];
  exemplars?: Detections;
  points?: readonly ClickValue[];
  boxes?: Detections;
  threshold: number;
}

/** Something to look for, and the object that it means where that is a known one. */
interface Search {
  prompt: SamPrompt;
  object: WorkflowObject | null;
}

const PROMPTS_MAX = 100;
const POINTED_CLASS = "object";

const segmenter = ({ sam }: ModelServices): RunBlock =>
  blockRun<SegmenterInputs, z.output<typeof SegmenterParameters>>(
    async ({ inputs, parameters, signal }) => {
      const { image, threshold } = inputs;
      checkConfidence(threshold);
      const searches = searchesOf(inputs);
      if (searches.length === 0) {
        return { outputs: { masks: { frame: image.frame, objects: [] }, count: 0 } };
      }
      const asked = parameters.segmenter ?? null;
      const {
        frames,
        warnings,
        left_out,
        segmenter: name,
      } = await sam(
        async () => image.pixels,
        {
          prompts: searches.map(({ prompt }) => prompt),
          threshold,
          mask: "rle",
          segmenter: asked,
        },
        signal,
      );
      const findings = frames[0]?.findings ?? [];
      const objects = findings.flatMap(({ prompt, confidence: sure, bbox, mask }) => {
        const search = searches[prompt] as Search;
        if (!mask || !("rle" in mask)) return [];
        const found: WorkflowObject = {
          ...search.object,
          class: search.prompt.class_name,
          confidence: sure,
          bbox,
          mask: mask.rle,
        };
        return [found];
      });
      const without = left_out.objects + findings.length - objects.length;
      const told = without > 0 ? [...warnings, `${without} objects are left out`] : warnings;
      return {
        outputs: { masks: { frame: image.frame, objects }, count: objects.length },
        models: [segmenterModel({ asked, name })],
        warnings: told,
      };
    },
  );

/** What a step looks for; fails where it was given nothing that could be. */
function searchesOf({ image, prompts, exemplars, points, boxes }: SegmenterInputs): Search[] {
  if (!prompts && !exemplars && !points && !boxes) {
    throw new BlockFailure("give prompts, exemplars, points or boxes: it has nothing to look for");
  }
  if (prompts && prompts.length > PROMPTS_MAX) {
    throw new BlockFailure(`${prompts.length} prompts are more than ${PROMPTS_MAX}`);
  }
  const found: Search[] = [...new Set(prompts)].map((text) => ({
    prompt: { kind: "text", class_name: text, text },
    object: null,
  }));
  for (const [name, own] of exemplarsByClass(image, exemplars)) {
    found.push({ prompt: { kind: "exemplar", class_name: name, exemplars: own }, object: null });
  }
  if (points && points.length > 0) {
    const clicks = points.map((click): Point => {
      const { label, ...at } =
        "label" in click ? click : { x: click[0], y: click[1], label: 1 as const };
      const [x, y] = pointOn(image.frame, [at.x, at.y]);
      return { x, y, label };
    });
    const prompt = {
      kind: "points",
      class_name: POINTED_CLASS,
      points: clicks,
      bbox: null,
    } as const;
    found.push({ prompt, object: null });
  }
  for (const object of boxes?.objects ?? []) {
    const bbox = insideOf(image, boxes as Detections, object);
    if (bbox) found.push({ prompt: { kind: "box", class_name: object.class, bbox }, object });
  }
  return found;
}

function exemplarsByClass(image: NodeImage, exemplars: Detections | undefined) {
  const byClass = new Map<string, { frame_index: number; bbox: Bbox }[]>();
  for (const object of exemplars?.objects ?? []) {
    const bbox = insideOf(image, exemplars as Detections, object);
    if (!bbox) continue;
    const own = byClass.get(object.class) ?? [];
    own.push({ frame_index: 0, bbox });
    byClass.set(object.class, own);
  }
  return byClass;
}

const insideOf = (image: NodeImage, { frame }: Detections, { bbox }: WorkflowObject) =>
  clip(boxOn(image.frame, frame, bbox), image.frame);
