// The form in which a segmenter is asked about an uploaded file: the file, and what to look for, in
// the words of the labeling routes. Each list may come as one JSON text, or as a field an entry.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { decimal } from "../../../../shared/scalars.ts";
import { Bbox, PIXELS_MAX, Point } from "../../../../shared/shapes.ts";
import { MASK_FORMS, type SamPrompt, type SamRequest } from "../../../../shared/tasks/sam.ts";
import type { Clock } from "../../../../shared/time.ts";
import { THRESHOLD_DEFAULT } from "../../../../shared/wire/labeling.ts";
import { invalidRequest, issuesOf } from "../../../http/issues.ts";
import { nullsAsNotGiven } from "../../../http/not-given.ts";
import { meantName } from "../../../http/unknown-fields.ts";
import type { Parts } from "../../base/parts.ts";
import { ClassName } from "../../labeling/classes.ts";
import {
  CROP_CHARACTERS_MAX,
  EXEMPLARS_MAX,
  PROMPTS_MAX,
  SegmentBody,
} from "../../labeling/jobs/bodies.ts";
import { unique } from "../../labeling/jobs/frame-references.ts";
import type { FormField, FormFile, FormLimits } from "../../media/uploads/form.ts";
import { IMAGE } from "../../media/uploads/media-types.ts";
import { type HeldShare, openShare } from "../predict/held-bytes.ts";
import type { FileRules } from "../predict/predictions.ts";

const BOXES_MAX = 100;
/** The largest index that a frame may have. */
const INDEX_MAX = 2_147_483_647;
/** Bytes of a crop: those of as much base64 as the JSON routes take. */
const CROP_BYTES_MAX = (CROP_CHARACTERS_MAX / 4) * 3;
const LIMITS: FormLimits = { fieldSize: 64 * 1024, fields: 300, files: 1 + EXEMPLARS_MAX };
/** Bytes of a form beyond its file. */
const OTHERS_BYTES_MAX = EXEMPLARS_MAX * CROP_BYTES_MAX + 4 * 1024 * 1024;

const Exemplar = z.strictObject({
  bbox: Bbox,
  frame_index: z.int().min(0).max(INDEX_MAX).default(0),
});
const Fields = z.strictObject({
  prompts: z.array(ClassName).max(PROMPTS_MAX).default([]),
  exemplars: z.array(Exemplar).max(EXEMPLARS_MAX).default([]),
  points: z.array(z.strictObject(Point.shape)).max(100).default([]),
  bbox: Bbox.optional(),
  boxes: z.array(Bbox).max(BOXES_MAX).default([]),
  class: ClassName.default("object"),
  threshold: decimal((number) => number.min(0).max(1)).default(THRESHOLD_DEFAULT),
  mask: z.enum(MASK_FORMS).default("rle"),
  segmenter: SegmentBody.shape.segmenter,
});
type Fields = z.output<typeof Fields>;
/** What a form gives as JSON is read as a JSON body is. */
const GivenFields = nullsAsNotGiven(Fields);
type FieldName = keyof Fields;

const NAMES = Object.keys(Fields.shape) as FieldName[];
/** Fields whose values are lists, and whether a value is a list of them or one. */
const LISTS: Partial<Record<FieldName, (value: unknown) => value is unknown[]>> = {
  prompts: Array.isArray,
  exemplars: Array.isArray,
  points: Array.isArray,
  // A box is a list itself.
  boxes: (value): value is unknown[] =>
    Array.isArray(value) && value.every((one) => Array.isArray(one)),
};
const TEXTS: readonly FieldName[] = ["class", "threshold", "mask", "segmenter"];

/** The fields of a form, as they come. Whoever makes one has to `free` it. */
export class SamForm {
  readonly #clock: Clock;
  readonly #given: Partial<Record<FieldName, unknown>> = {};
  readonly #crops: string[] = [];
  #share: HeldShare | null = null;

  constructor({ clock }: Pick<Parts, "clock">) {
    this.#clock = clock;
  }

  /** How a form is read whose file is the form's `file`. */
  get others(): NonNullable<FileRules["others"]> {
    return {
      listen: (part) => (part.kind === "field" ? this.#field(part) : this.#crop(part)),
      limits: LIMITS,
      bytesMax: OTHERS_BYTES_MAX,
    };
  }

  #field({ name: given, value }: FormField) {
    const name = NAMES.find((one) => one === given);
    if (given === "file" || given === "crop") throw invalid(`${given}: must be a file`);
    if (!name) throw unknownField(given);
    const isList = LISTS[name];
    if (isList) {
      const read = name === "prompts" ? wordsOf(value) : parsedJson(name, value);
      const before = (this.#given[name] as unknown[] | undefined) ?? [];
      this.#given[name] = [...before, ...(isList(read) ? read : [read])];
      return;
    }
    if (name in this.#given) throw invalid(`${name}: given twice`);
    this.#given[name] = TEXTS.includes(name) ? value : parsedJson(name, value);
  }

  async #crop({ name, chunks }: FormFile) {
    if (name !== "crop") throw unknownField(name);
    if (this.#crops.length === EXEMPLARS_MAX) {
      throw invalid(`crop: at most ${EXEMPLARS_MAX} are taken`);
    }
    // A share beside the file's: crops stay in memory also where the file is stored.
    this.#share ??= openShare(this.#clock, 0);
    const bytes = new Uint8Array(CROP_BYTES_MAX);
    let filled = 0;
    for await (const chunk of chunks) {
      if (filled + chunk.length > CROP_BYTES_MAX) {
        const data = { bytes_max: CROP_BYTES_MAX };
        throw new Failure("file_too_large", `crop: over ${CROP_BYTES_MAX} bytes`, { data });
      }
      // As the text in which it goes on.
      this.#share.grow(Math.ceil((chunk.length * 4) / 3));
      bytes.set(chunk, filled);
      filled += chunk.length;
    }
    const crop = bytes.subarray(0, filled);
    IMAGE.typeOf(crop);
    this.#crops.push(crop.toBase64());
  }

  /** Gives back the room that crops take; again is of no account. */
  free(): void {
    this.#share?.free();
  }

  /** What is asked, once the form has ended. Fails with `invalid_request`. */
  request(of: "image" | "clip"): SamRequest {
    const read = GivenFields.safeParse(this.#given);
    if (!read.success) throw invalidRequest(issuesOf(read.error));
    const { threshold, mask, segmenter = null } = read.data;
    const prompts = promptsOf(read.data, this.#crops);
    const pointing = prompts.find(({ kind }) => kind === "points" || kind === "box");
    if (of === "clip" && pointing) {
      const field = pointing.kind === "points" ? "points" : "boxes";
      throw invalid(
        `${field}: are of one image; a clip is searched by prompts, exemplars or crops`,
      );
    }
    if (prompts.length === 0) {
      const ways = of === "clip" ? "" : ", points or boxes";
      throw invalid(`prompts: required, or exemplars, a crop${ways}`);
    }
    return { prompts, threshold, mask, segmenter };
  }
}

function promptsOf(fields: Fields, crops: readonly string[]): SamPrompt[] {
  const { class: class_name, points, bbox = null } = fields;
  const exemplars = [...fields.exemplars, ...crops.map((crop) => ({ crop }))];
  if (exemplars.length > EXEMPLARS_MAX) {
    throw invalid(`exemplars: at most ${EXEMPLARS_MAX} are taken, crops among them`);
  }
  if (bbox && points.length === 0 && fields.boxes.length > 0) {
    throw invalid("bbox: goes with points; give it among boxes");
  }
  const boxes = bbox && points.length === 0 ? [bbox] : fields.boxes;
  const texts = unique(fields.prompts).map(
    (text): SamPrompt => ({ kind: "text", class_name: text, text }),
  );
  const prompts: SamPrompt[] = [...texts];
  if (exemplars.length > 0) prompts.push({ kind: "exemplar", class_name, exemplars });
  if (points.length > 0) prompts.push({ kind: "points", class_name, points, bbox });
  for (const box of boxes) prompts.push({ kind: "box", class_name, bbox: box });
  return prompts;
}

/** A word as it stands, or a list of words as JSON. */
function wordsOf(value: string): unknown {
  if (!value.trimStart().startsWith("[")) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

function parsedJson(name: string, value: string): unknown {
  try {
    return JSON.parse(value);
  } catch {
    throw invalid(`${name}: must be JSON`);
  }
}

const invalid = (detail: string) => new Failure("invalid_request", detail);

function unknownField(name: string): Failure {
  const known = ["file", "crop", ...NAMES];
  const meant = meantName(name, known);
  const advice = meant ? `did you mean ${meant}?` : `this form knows ${known.join(", ")}`;
  return invalid(`${name.slice(0, 64)}: unknown field; ${advice}`);
}

const list = <Items extends object>(items: Items, description: string, maxItems: number) => ({
  type: "array" as const,
  items,
  maxItems,
  description,
});
const number = { type: "number" as const };
/** As the schema of boxes in JSON bodies. */
const box = {
  type: "array" as const,
  prefixItems: [number, number, number, number],
  items: number,
  minItems: 4,
  maxItems: 4,
  description: "[x1, y1, x2, y2] in pixels",
};
const coordinate = () => ({
  type: "number" as const,
  minimum: -PIXELS_MAX,
  maximum: PIXELS_MAX,
});
const point = {
  type: "object" as const,
  properties: {
    x: coordinate(),
    y: coordinate(),
    label: { type: "integer" as const, enum: [0, 1] },
  },
  required: ["x", "y", "label"],
};
const exemplar = {
  type: "object" as const,
  properties: {
    bbox: box,
    frame_index: {
      type: "integer" as const,
      minimum: 0,
      maximum: INDEX_MAX,
      default: 0,
      description: "the frame that it lies on, in display order; an image has frame 0",
    },
  },
  required: ["bbox"],
};
const file = { type: "string" as const, format: "binary" };

const searched = {
  file,
  prompts: list(
    { type: "string" as const, minLength: 1, maxLength: 200 },
    "words to look for, each a class; a field a word, or one JSON list",
    PROMPTS_MAX,
  ),
  exemplars: list(
    exemplar,
    "examples of one class: boxes on the file's own frames, of which an image has one",
    EXEMPLARS_MAX,
  ),
  crop: list(file, "images of such an object alone, as files of their own", EXEMPLARS_MAX),
  class: {
    type: "string" as const,
    minLength: 1,
    maxLength: 200,
    default: "object",
    description: "class of what is found by anything but words",
  },
  threshold: {
    type: "number" as const,
    minimum: 0,
    maximum: 1,
    default: THRESHOLD_DEFAULT,
    description: "lowest confidence of what words and examples find; nothing below 0.05 is told",
  },
  mask: {
    type: "string" as const,
    enum: [...MASK_FORMS],
    default: "rle",
    description: "how masks are told; `none` asks for boxes only, which is much faster",
  },
  segmenter: {
    type: "string" as const,
    minLength: 1,
    maxLength: 200,
    description: "of those a node offers; its default when omitted",
  },
};

/** Described by hand: a zod schema would have the body taken into memory whole. */
const described = <Properties extends object>(properties: Properties) => ({
  required: true,
  content: {
    "multipart/form-data": {
      schema: { type: "object" as const, properties, required: ["file"] },
    },
  },
});

/** The form of an image. */
export const imageForm = described({
  ...searched,
  points: list(point, "clicks on one object: on it (1) or off it (0), in pixels", 100),
  bbox: { ...box, description: "a box around the object of the clicks" },
  boxes: list(box, "boxes, around one object each: [[x1, y1, x2, y2], …]", BOXES_MAX),
});

/** The form of a clip. */
export const clipForm = described(searched);
