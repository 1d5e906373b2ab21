// Bodies of requests about endpoints.

import { z } from "@hono/zod-openapi";
import {
  ENDPOINT_MODELS_MAX,
  type EndpointSettings,
  IMAGE_SIZE_MAX,
  IMAGE_SIZE_MIN,
  SLUG_FORM,
} from "../../../../shared/wire/endpoints.ts";
import { CONFIDENCE_DEFAULT } from "../../../../shared/wire/serving.ts";
import { MODEL_NAMES } from "../../../../shared/wire/training.ts";
import { name, text, title } from "../../../http/texts.ts";
import { targetOf } from "./settings.ts";

const CLASSES_MAX = 1_000;
const WEIGHT_MAX = 1_000_000;

/** The name of an endpoint in addresses. */
export const Slug = z
  .string()
  .regex(
    new RegExp(SLUG_FORM),
    "must be 1 to 63 lowercase letters, digits and hyphens, a hyphen neither first nor last",
  )
  .meta({ description: "the endpoint's name in addresses" });

const target = {
  model_id: z.uuid().nullable().optional().meta({ description: "this model; or give `alias`" }),
  alias: z
    .enum(MODEL_NAMES)
    .nullable()
    .optional()
    .meta({ description: "whichever model has it, `active` too; or give `model_id`" }),
};

const models = z
  .array(
    z.strictObject({
      ...target,
      weight: z
        .number()
        .min(0)
        .max(WEIGHT_MAX)
        .default(1)
        .meta({ description: "its share of the sum of the weights; 0 gets no request" }),
    }),
  )
  .min(1)
  .max(ENDPOINT_MODELS_MAX)
  .meta({ description: "who answers: one, or several that traffic is split among" });
const description = text().max(2_000);
const classes = z
  .array(name().max(200))
  .min(1)
  .max(CLASSES_MAX)
  .nullable()
  .meta({ description: "only detections of these are told; null is all" });
const confidence = z
  .number()
  .min(0)
  .max(1)
  .meta({ description: "detections of at least this confidence are told" });
const image_size = z.int().min(IMAGE_SIZE_MIN).max(IMAGE_SIZE_MAX).multipleOf(32).nullable().meta({
  description: "side of the square input in pixels, a multiple of 32; null is each model's own",
  multipleOf: 32,
});
const shadow = z
  .strictObject({
    ...target,
    share: z
      .number()
      .positive()
      .max(1)
      .default(1)
      .meta({ description: "of the answered requests, above 0 to 1" }),
  })
  .nullable()
  .meta({ description: "a model that looks at the same images, and answers nobody; null is none" });

/** A new endpoint. */
export const EndpointBody = z.strictObject({
  slug: Slug,
  workspace_id: z.uuid().optional().meta({
    description: "whose; required where you are an engineer of several workspaces",
  }),
  description: description.default(""),
  models,
  classes: classes.default(null),
  confidence: confidence.default(CONFIDENCE_DEFAULT),
  image_size: image_size.default(null),
  shadow: shadow.default(null),
});

/** What is to change of an endpoint. */
export const EndpointPatch = z.strictObject({
  revision: z.int().min(1).max(2_147_483_647).optional().meta({
    description: "the revision that you saw: another one is 409; without it the newest is changed",
  }),
  description: description.optional(),
  models: models.optional(),
  classes: classes.optional(),
  confidence: confidence.optional(),
  image_size: image_size.optional(),
  shadow: shadow.optional(),
});

/** A new key. */
export const KeyBody = z.strictObject({
  name: title(),
  requests_per_minute: z.int().min(1).max(1_000_000).nullable().default(null).meta({
    description: "predictions that it opens in the long run; null is without a limit",
  }),
  burst: z
    .int()
    .min(1)
    .max(100_000)
    .nullable()
    .default(null)
    .meta({
      description:
        "predictions that it opens at once after a pause; null is those of ten seconds. Only with " +
        "`requests_per_minute`",
    }),
});

const modelsOf = (given: z.output<typeof models>): EndpointSettings["models"] =>
  given.map(({ weight, ...one }, index) => ({ ...targetOf(one, `models.${index}`), weight }));

function shadowOf(given: z.output<typeof shadow>): EndpointSettings["shadow"] {
  if (!given) return null;
  const { share, ...one } = given;
  return { ...targetOf(one, "shadow"), share };
}

/** The settings of a new endpoint. */
export const settingsOf = (body: z.output<typeof EndpointBody>): EndpointSettings => ({
  description: body.description,
  models: modelsOf(body.models),
  classes: body.classes,
  confidence: body.confidence,
  image_size: body.image_size,
  shadow: shadowOf(body.shadow),
});

/** Settings with what a body changes of them. */
export const changedSettings = (
  settings: EndpointSettings,
  body: z.output<typeof EndpointPatch>,
): EndpointSettings => ({
  description: body.description ?? settings.description,
  models: body.models ? modelsOf(body.models) : settings.models,
  classes: body.classes === undefined ? settings.classes : body.classes,
  confidence: body.confidence ?? settings.confidence,
  image_size: body.image_size === undefined ? settings.image_size : body.image_size,
  shadow: body.shadow === undefined ? settings.shadow : shadowOf(body.shadow),
});
