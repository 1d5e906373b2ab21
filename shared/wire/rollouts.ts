// Wire shapes of rollouts: which file devices are to run, how it comes to them in stages, and the
// signed manifest by which a device knows it. What devices report of it is `fleet.ts`'s.

import { z } from "zod";
import { ManifestKey, MODEL_STATES } from "./fleet.ts";

/** Stands before the manifest's bytes where they are signed: a signature is of nothing else. */
export const MANIFEST_DOMAIN = "vantage-manifest-v1\n";
/** What a manifest is laid out as; devices refuse others. */
export const MANIFEST_LAYOUT = 1;
/** Bytes of an Ed25519 signature and of a public key. */
export const SIGNATURE_BYTES = 64;
export const PUBLIC_KEY_BYTES = 32;
/** Buckets that devices of a rollout are hashed into. */
export const ROLLOUT_BUCKETS = 10_000;
export const STAGES_MAX = 10;
export const STAGES_DEFAULT = [1, 10, 50, 100];
export const ROLLOUT_STATES = [
  "rolling",
  "paused",
  "completed",
  "superseded",
  "rolled_back",
  "aborted",
] as const;
export type RolloutState = (typeof ROLLOUT_STATES)[number];

const instant = () => z.iso.datetime();
const count = () => z.number().int().min(0).max(2_147_483_647);
const id = () => z.uuid();

/** `1.20.3`, as agents tell their release. */
export const AGENT_VERSION = /^(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})$/;

/** Whether a release is at least another one; of a text that is no release nothing is known. */
export function isRecent(version: string, min: string): boolean {
  const [one, other] = [AGENT_VERSION.exec(version), AGENT_VERSION.exec(min)];
  if (!one || !other) return false;
  for (let part = 1; part <= 3; part++) {
    const difference = Number(one[part]) - Number(other[part]);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

/** What a device is asked of before it calls a model its own. */
export const Confirmation = z.strictObject({
  inferences: z
    .int()
    .min(1)
    .max(1_000_000)
    .default(20)
    .meta({ description: "good inferences after which a device confirms" }),
  seconds: z
    .int()
    .min(1)
    .max(604_800)
    .default(3_600)
    .meta({ description: "within which they are to come, counted from the first image" }),
});
export type Confirmation = z.infer<typeof Confirmation>;

const gate = {
  confirmed_min: z
    .number()
    .min(0)
    .max(1)
    .meta({ description: "share of the devices heard from that confirmed, to go on" }),
  failed_max: z
    .number()
    .min(0)
    .max(1)
    .meta({ description: "share of the devices heard from that may roll back or fail" }),
  crash_loops_max: count().meta({ description: "devices that may give up on it for its crashes" }),
  inference_failures_max: z
    .number()
    .min(0)
    .max(1)
    .meta({ description: "share of inferences with it that may fail, from a hundred on" }),
  latency_ratio_max: z.number().positive().max(1_000).nullable().meta({
    description: "median over devices of its latency by the former one's; null is without a bound",
  }),
  score_shift_max: z
    .number()
    .positive()
    .max(100)
    .nullable()
    .meta({
      description:
        "population stability index of its scores against the former model's, where it is beyond " +
        "chance; null is without a bound",
    }),
  stage_minutes: z
    .number()
    .min(0)
    .max(43_200)
    .meta({ description: "minutes that a stage lasts at least" }),
};

/** What each stage has to come to. */
export const RolloutGates = z.object(gate).meta({ id: "RolloutGates" });
export type RolloutGates = z.infer<typeof RolloutGates>;

export const GATES_DEFAULT: RolloutGates = {
  confirmed_min: 0.8,
  failed_max: 0.1,
  crash_loops_max: 0,
  inference_failures_max: 0.05,
  latency_ratio_max: 1.5,
  score_shift_max: 0.25,
  stage_minutes: 10,
};

/** The gates that a body names; others are as by default. */
export const GivenGates = z.strictObject(gate).partial();

/** The file that a rollout brings, as devices need to know it. */
export const RolloutFile = z
  .object({
    format: z.literal("onnx").meta({ description: "what the file is" }),
    runtime: z.literal("onnxruntime").meta({ description: "what runs it" }),
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/)
      .meta({ description: "of the file, in hex" }),
    size: z.int().min(1).meta({ description: "bytes of the file" }),
    task: z.enum(["detection", "segmentation"]).meta({ description: "what the model does" }),
    classes: z.array(z.string()).min(1).meta({ description: "class names, in index order" }),
    image_size: z
      .tuple([z.int().min(1), z.int().min(1)])
      .meta({ description: "height and width of the input in pixels" }),
  })
  .meta({ id: "RolloutFile" });
export type RolloutFile = z.infer<typeof RolloutFile>;

/** What a device is to run. The service signs its text; the device believes nothing else. */
export const Manifest = z
  .object({
    layout: z.literal(MANIFEST_LAYOUT).meta({ description: "of the manifest" }),
    device_id: id().meta({ description: "whom it is for; nobody else takes it" }),
    version: z
      .string()
      .regex(/^[1-9]\d{0,17}$/)
      .meta({
        description: "a whole number that rises; a device refuses one below the last it took",
      }),
    rollout_id: id(),
    model_id: id(),
    export_id: id(),
    file: RolloutFile,
    confidence: z.number().min(0).max(1).meta({ description: "detections below it are not told" }),
    confirm: z.object({ inferences: z.int().min(1), seconds: z.int().min(1) }).meta({
      description: "good inferences after which it is confirmed, and seconds they may take",
    }),
    min_agent: z.string().regex(AGENT_VERSION).meta({ description: "release that it asks for" }),
    keys: z
      .array(ManifestKey)
      .min(1)
      .max(8)
      .meta({ description: "keys that manifests are signed with from now on" }),
    issued_at: instant().meta({ description: "when it was wanted of the device" }),
  })
  .meta({ id: "Manifest" });
export type Manifest = z.infer<typeof Manifest>;

export const SignedManifest = z
  .object({
    manifest: z.string().max(262_144).meta({
      description: "the manifest as JSON; its very bytes in UTF-8 are what is signed",
    }),
    signatures: z
      .array(
        z.object({
          key_id: z.string().meta({ description: "of the key that it verifies with" }),
          signature: z.string().meta({
            description: "Ed25519, in base64url, of `vantage-manifest-v1`, a newline, the manifest",
          }),
        }),
      )
      .min(1)
      .meta({ description: "one of each key: one that the device knows is enough" }),
  })
  .meta({ id: "SignedManifest" });
export type SignedManifest = z.infer<typeof SignedManifest>;

/** What devices made of a rollout, as its gates see it. */
export const RolloutFigures = z
  .object({
    taken: count().meta({
      description:
        "devices that it was given to; those that were revoked or deleted, or were away for a " +
        "week, before they decided are left out",
    }),
    heard: count().meta({
      description:
        "of them, those that told of it or beat lately, and were not lost before they tried it: " +
        "who is away keeps nobody waiting",
    }),
    confirmed: count().meta({ description: "of those, devices that confirmed it" }),
    failed: count().meta({
      description:
        "of those, devices that rolled back or failed, or fell silent with it on trial for ten " +
        "intervals longer than they have to confirm",
    }),
    crash_loops: count().meta({ description: "of those, devices that gave up for its crashes" }),
    inferences: z.number().min(0).meta({
      description: "made with it; of a device that makes more than the median one, as many as that",
    }),
    inference_failures: z.number().min(0).meta({ description: "of them, those that failed" }),
    latency_ratio: z.number().nullable().meta({
      description: "median over devices of its latency by the former one's; null: nothing known",
    }),
    score_shift: z.number().nullable().meta({
      description: "population stability index of the scores; null: too few to tell",
    }),
    score_shift_by_chance: z.number().nullable().meta({
      description: "what samples of one distribution exceed once in twenty times",
    }),
  })
  .meta({ id: "RolloutFigures" });
export type RolloutFigures = z.infer<typeof RolloutFigures>;

export const Rollout = z
  .object({
    rollout_id: id().meta({ description: "the rollout's id" }),
    workspace_id: id(),
    group: z.string().nullable().meta({ description: "whose devices get it; null is all groups" }),
    tags: z.array(z.string()).meta({ description: "tags that its devices have, all of them" }),
    model_id: id(),
    export_id: id().meta({ description: "the model's export that devices get" }),
    file: RolloutFile,
    confidence: z.number().meta({ description: "detections below it are not told" }),
    confirm: Confirmation.meta({ description: "what a device does before it confirms" }),
    min_agent: z.string().meta({ description: "release of the agent that it asks for" }),
    stages: z.array(z.number()).meta({ description: "shares of the devices, percent" }),
    stage: z.int().min(0).meta({ description: "index of the stage that it is in" }),
    stage_since: instant().meta({ description: "when that stage began" }),
    gates: RolloutGates,
    status: z.enum(ROLLOUT_STATES).meta({
      description:
        "`rolling`, `paused`: on its way; `completed`: all stages passed, and new devices get it; " +
        "`superseded`: a later one of the same devices completed; `rolled_back`: a gate failed; " +
        "`aborted`: somebody called it off",
    }),
    reason: z.string().nullable().meta({ description: "why it stands where it stands" }),
    population: count().meta({ description: "devices that it is for" }),
    devices: z
      .record(z.enum(MODEL_STATES), count())
      .meta({ description: "devices that it was given to, by state" }),
    figures: RolloutFigures,
    created_at: instant(),
    updated_at: instant(),
  })
  .meta({ id: "Rollout" });
export type Rollout = z.infer<typeof Rollout>;

/** What happened to a rollout. */
export const ROLLOUT_MOVES = [
  "create",
  "advance",
  "complete",
  "supersede",
  "pause",
  "resume",
  "abort",
  "roll_back",
] as const;

export const RolloutMove = z
  .object({
    move_id: z.int().meta({ description: "the move's number" }),
    rollout_id: id().meta({ description: "the rollout's id" }),
    kind: z.enum(ROLLOUT_MOVES).meta({ description: "what was done" }),
    stage: z.int().meta({ description: "index of the stage that it was in then" }),
    reason: z.string().nullable().meta({ description: "why the service did it" }),
    figures: z
      .union([RolloutFigures, z.null()])
      .meta({ description: "what the gates saw; null where people did it" }),
    actor_id: id().nullable().meta({ description: "who did it; null: the service itself" }),
    at: instant().meta({ description: "when it was done" }),
  })
  .meta({ id: "RolloutMove" });
export type RolloutMove = z.infer<typeof RolloutMove>;

/** A device of a rollout. */
export const RolloutDevice = z
  .object({
    device_id: id().meta({ description: "the device's id" }),
    name: z.string().meta({ description: "the device's name" }),
    bucket: z
      .int()
      .meta({ description: "0 to 9,999, a hash of device and rollout: the lower, the earlier" }),
    version: z.string().meta({ description: "of the manifest that it was given" }),
    status: z.enum(MODEL_STATES).meta({ description: "how far the device is" }),
    failure: z.string().nullable().meta({ description: "why it did not take it" }),
    crashes: count().meta({ description: "starts of the agent on it that ended badly" }),
    inferences: z.number().meta({ description: "made with it" }),
    inference_failures: z.number().meta({ description: "of them, those that failed" }),
    latency_p50_ms: z.number().nullable().meta({ description: "median milliseconds an image" }),
    assigned_at: instant().meta({ description: "when it was wanted of the device" }),
    reported_at: instant().nullable().meta({ description: "when the device last told of it" }),
  })
  .meta({ id: "RolloutDevice" });
export type RolloutDevice = z.infer<typeof RolloutDevice>;
