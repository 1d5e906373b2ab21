// Wire shapes of named endpoints: what they serve, how they moved, how they fare. Boxes and classes
// are those of predictions; times are UTC.

import { z } from "zod";
import { MODEL_NAMES } from "./training.ts";

const instant = () => z.iso.datetime();
const count = () => z.number().int().min(0);

/** What the description says of a slug, too. */
export const SLUG_FORM = "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$";
/** Models that one endpoint splits its traffic among. */
export const ENDPOINT_MODELS_MAX = 10;
/** Image sizes an endpoint may ask of a model, pixels. */
export const IMAGE_SIZE_MIN = 32;
export const IMAGE_SIZE_MAX = 2_048;

/** A model by its id, or whichever a name means; one of the two is null. */
const target = {
  model_id: z.uuid().nullable().meta({ description: "this model; null where it follows `alias`" }),
  alias: z
    .enum(MODEL_NAMES)
    .nullable()
    .meta({ description: "whichever model has it; null where it is one model by its id" }),
};

/** What an endpoint serves, and how. */
export const EndpointSettings = z
  .object({
    description: z.string(),
    models: z
      .array(
        z.object({
          ...target,
          weight: z.number().min(0).meta({ description: "its share of the sum of the weights" }),
        }),
      )
      .meta({ description: "who answers: one, or several that traffic is split among" }),
    classes: z
      .array(z.string())
      .nullable()
      .meta({ description: "only detections of these are told; null is all" }),
    confidence: z.number().meta({ description: "detections of at least this confidence are told" }),
    image_size: z
      .number()
      .int()
      .nullable()
      .meta({ description: "side of the square input in pixels; null is each model's own" }),
    shadow: z
      .object({
        ...target,
        share: z.number().meta({ description: "of the answered requests, 0 to 1" }),
      })
      .nullable()
      .meta({ description: "a model that looks at the same images, and answers nobody" }),
  })
  .meta({ id: "EndpointSettings" });
export type EndpointSettings = z.infer<typeof EndpointSettings>;

export const Endpoint = z
  .object({
    endpoint_id: z.uuid().meta({ description: "the endpoint's id" }),
    workspace_id: z.uuid(),
    slug: z.string().meta({ description: "its name in addresses, one of a kind in its workspace" }),
    settings: EndpointSettings,
    serving: z.array(z.uuid()).meta({
      description: "the models that answer now, in the order of `settings.models`",
    }),
    shadowing: z.uuid().nullable().meta({
      description: "the model that is the shadow now; null where there is none",
    }),
    revision: z.number().int().meta({ description: "counts up with each move" }),
    created_at: instant(),
    updated_at: instant().meta({ description: "when it last moved" }),
  })
  .meta({ id: "Endpoint" });
export type Endpoint = z.infer<typeof Endpoint>;

export const ENDPOINT_MOVES = ["create", "change", "rollback", "delete"] as const;

export const EndpointMove = z
  .object({
    move_id: z.number().int(),
    endpoint_id: z.uuid().meta({ description: "the endpoint that had the slug" }),
    kind: z.enum(ENDPOINT_MOVES),
    // `.nullable()` would have descriptions name the shape with its null.
    before: z
      .union([EndpointSettings, z.null()])
      .meta({ description: "null where it was not there" }),
    after: z.union([EndpointSettings, z.null()]).meta({ description: "null where it was deleted" }),
    rollback_of: z
      .number()
      .int()
      .nullable()
      .meta({ description: "the oldest of the moves that this one took back" }),
    actor_id: z.uuid().nullable(),
    at: instant(),
  })
  .meta({ id: "EndpointMove" });
export type EndpointMove = z.infer<typeof EndpointMove>;

export const EndpointKey = z
  .object({
    key_id: z.uuid().meta({ description: "the key's id" }),
    name: z.string(),
    prefix: z.string().meta({ description: "how the key begins, to tell it from others" }),
    requests_per_minute: z
      .number()
      .int()
      .nullable()
      .meta({ description: "predictions that it opens in the long run; null is without a limit" }),
    burst: z.number().int().nullable().meta({
      description: "predictions that it opens at once after a pause; null without a limit",
    }),
    created_at: instant(),
    revoked_at: instant().nullable().meta({ description: "null while it opens" }),
  })
  .meta({ id: "EndpointKey" });
export type EndpointKey = z.infer<typeof EndpointKey>;

const milliseconds = () =>
  z.number().nullable().meta({ description: "milliseconds, within 1 %; null where none answered" });

/** What requests came to. */
const figures = {
  requests: count().meta({ description: "that came; each is in `answered` or in `errors`" }),
  answered: count().meta({ description: "with detections, or with none found" }),
  errors: z
    .record(z.string(), count())
    .meta({ description: "requests that were refused or failed, by the error's code" }),
  latency_ms: z
    .object({ p50: milliseconds(), p95: milliseconds(), p99: milliseconds() })
    .meta({ description: "of the answered, from the image's last byte to the answer" }),
  batch_sizes: z
    .array(
      z.object({
        size: z.number().int().meta({ description: "images that a node looked at together" }),
        count: count().meta({ description: "requests whose image was in such a batch" }),
      }),
    )
    .meta({ description: "as far as the nodes tell, smallest first" }),
  cold_starts: count().meta({
    description: "requests that waited until a node had opened the model, as far as nodes tell",
  }),
};

const ModelFigures = z
  .object({ model_id: z.uuid(), ...figures })
  .meta({ id: "ModelFigures", description: "what requests came to that one model got" });

export const ShadowFigures = z
  .object({
    model_id: z.uuid().meta({ description: "the model that was the shadow" }),
    mirrored: count().meta({ description: "answered requests that its share chose" }),
    compared: count().meta({ description: "of them, those that it looked at" }),
    shed: z.record(z.string(), count()).meta({
      description:
        "of them, those that were let go, by why: `busy` (as many were under way as may be), " +
        "`nodes_full`, `no_line`, `too_large`",
    }),
    failed: count().meta({ description: "of them, those that failed" }),
    matched: count().meta({
      description: "pairs of detections of one class whose boxes have an IoU of 0.5 or more",
    }),
    other_class: count().meta({ description: "pairs of such boxes of two classes" }),
    only_live: count().meta({ description: "detections of the answer without a pair" }),
    only_shadow: count().meta({ description: "detections of the shadow without a pair" }),
    mean_iou: z.number().nullable().meta({ description: "of the `matched`; null without any" }),
  })
  .meta({ id: "ShadowFigures" });
export type ShadowFigures = z.infer<typeof ShadowFigures>;

const Window = z
  .object({
    since: instant().meta({
      description:
        "its beginning: of an hour by the full minute, of the longer ones by the full hour",
    }),
    ...figures,
    models: z.array(ModelFigures).meta({ description: "the same by model, the busiest first" }),
    shadows: z
      .array(ShadowFigures)
      .meta({ description: "what each model that was the shadow saw" }),
  })
  .meta({ id: "EndpointWindow" });

export const WINDOWS = ["1h", "24h", "7d"] as const;
export type WindowName = (typeof WINDOWS)[number];

export const EndpointStatus = z
  .object({
    endpoint_id: z.uuid().meta({ description: "the endpoint's id" }),
    slug: z.string().meta({ description: "its name in addresses" }),
    workspace_id: z.uuid(),
    health: z.enum(["ok", "no_model", "no_node"]).meta({
      description: "`ok`: a prediction would be made now",
    }),
    serving: z.array(z.uuid()).meta({ description: "the models that answer now" }),
    nodes: z.object({
      able: count().meta({ description: "live nodes that predict" }),
      warm: count().meta({ description: "those that have the first of the models open" }),
    }),
    in_flight: count().meta({ description: "requests that wait for their answer" }),
    windows: z
      .object({ "1h": Window, "24h": Window, "7d": Window })
      .meta({ description: "what came of requests, over the last hour, day and week" }),
  })
  .meta({ id: "EndpointStatus" });
export type EndpointStatus = z.infer<typeof EndpointStatus>;

export const DRIFT_VERDICTS = ["unknown", "stable", "moderate", "large"] as const;

export const Drift = z
  .object({
    model_id: z.uuid().meta({ description: "the active model" }),
    reference: z.enum(["validation", "first_predictions"]).meta({
      description:
        "what it is held against: the model's detections on its validation split; where these are " +
        "not known, those of its first predictions here, of each endpoint and of the default routes " +
        "by itself",
    }),
    reference_count: count().meta({ description: "detections of the reference" }),
    count: count().meta({
      description: "detections in the window, those of the reference left out",
    }),
    psi: z
      .number()
      .nullable()
      .meta({
        description:
          "population stability index of the confidences from 0.25 on, in bins of 0.05; null before " +
          "there are enough of both",
      }),
    psi_by_chance: z.number().nullable().meta({
      description: "what samples of these sizes exceed by chance once in twenty times",
    }),
    verdict: z.enum(DRIFT_VERDICTS).meta({
      description:
        "`stable` below 0.1 or what chance gives, `moderate` below 0.25, else `large`; `unknown` " +
        "where `psi` is null",
    }),
  })
  .meta({ id: "Drift" });
export type Drift = z.infer<typeof Drift>;

export const MetricsSummary = z
  .object({
    workspace_id: z.uuid(),
    window: z.enum(WINDOWS).meta({ description: "how far back it goes" }),
    since: instant().meta({ description: "the window's beginning" }),
    active_model_id: z.uuid().nullable().meta({ description: "null where none is active" }),
    endpoints: count().meta({ description: "named endpoints whose requests are in it" }),
    ...figures,
    predictions: count().meta({ description: "detections of the answers" }),
    classes: z
      .array(z.object({ class: z.string(), count: count() }))
      .meta({ description: "detections by class, the most frequent first" }),
    confidence_histogram: z.array(z.object({ from: z.number(), to: z.number(), count: count() })),
    models: z.array(ModelFigures).meta({ description: "the same by model, the busiest first" }),
    drift: z
      .union([Drift, z.null()])
      .meta({ description: "of the active model; null where none is active" }),
  })
  .meta({ id: "MetricsSummary" });
export type MetricsSummary = z.infer<typeof MetricsSummary>;
