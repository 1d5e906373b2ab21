// What crosses between the vision service and GPU nodes beside the tasks themselves: who a node is,
// claims, leases, heartbeats, progress and outcomes. A node acts only on what a claim handed it,
// and each of its writes carries the claim's fence.

import { z } from "zod";
import { mapOf } from "../scalars.ts";
import { IMAGE_SIZE_MAX } from "../wire/endpoints.ts";

/** A lease lasts this long without a heartbeat; nodes renew at a third of it. */
export const LEASE_SECONDS = 60;
export const HEARTBEAT_SECONDS = 20;

/**
 * Version of what nodes and the service say to each other, raised by each change that the other
 * side must know. A node of another version is given no tasks: they wait for one of the same.
 */
export const NODE_PROTOCOL = 1;

/** Names of task kinds; one that a service does not know yet, or any more, is no mistake. */
const kinds = () =>
  z.array(z.string().regex(/^[a-z][a-z_]{0,31}$/, "must be a kind's name")).max(64);

const Count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
/** A task's count of claims: who names an older one has lost it. */
const Fence = Count;

/** Bounds of what a node says of itself: far above what any has said. */
const short = () => z.string().max(1_000);
const SEGMENTERS_MAX = 100;
const WORDS_MAX = 100_000;
const LOADED_MAX = 64;
/** Sentences of what a node cannot do. */
const MISSING_MAX = 100;
/** Tasks that a node holds. */
const HELD_MAX = 1_000;
/** Characters of an object's key, in S3 too. */
const KEY_CHARACTERS_MAX = 1_024;
/** Characters of why a task failed: a program's last words may be many. */
const FAILURE_CHARACTERS_MAX = 100_000;

/** The sizes that models are open for, pixels a side, by model. */
const loadedSizes = () =>
  mapOf(
    z.string().max(100),
    z.array(z.number().int().min(1).max(IMAGE_SIZE_MAX)).max(LOADED_MAX),
    LOADED_MAX,
  );

/** What a segmenter's name is behind, among the ids of models that are open on a node. */
export const SEGMENTER_PREFIX = "segmenter:";

/** First weights of trainings that a node has, of one variant. */
export const InstalledWeights = z.object({
  dataset: short().meta({ description: "the set's name; runs ask for it" }),
  variant: short(),
  title: short(),
  licence: short(),
  source: short().meta({ description: "where they come from, in their operator's words" }),
});
export type InstalledWeights = z.infer<typeof InstalledWeights>;
const WEIGHTS_MAX = 1_000;

/** What a node says it is and can do. */
export const Capabilities = z
  .object({
    version: short(),
    /** Which `NODE_PROTOCOL` it speaks. */
    protocol: z.number().int().min(1).max(1_000),
    kinds: kinds(),
    device: z.object({ kind: z.enum(["cpu", "cuda"]), name: short(), count: Count }),
    memory_bytes: Count,
    /** What its open models may take of that together. */
    models_bytes_max: Count,
    cores: Count,
    ffmpeg: short().nullable(),
    /** Installed segmenters, the default first. */
    segmenters: z
      .array(
        z.object({
          name: short(),
          title: short(),
          text: z.enum(["none", "closed", "open"]),
          /** The words a closed one knows; empty for the others. */
          vocabulary: z.array(short()).max(WORDS_MAX),
          /** What those words mean that are no class's own name. */
          meanings: mapOf(
            short(),
            z.object({ classes: z.array(short()).max(WORDS_MAX), narrower: z.boolean() }),
            WORDS_MAX,
          ),
          exemplar: z.enum(["none", "same_image", "any_image"]),
          licence: short(),
        }),
      )
      .max(SEGMENTERS_MAX),
    /** First weights that are installed. */
    weights: z.array(InstalledWeights).max(WEIGHTS_MAX),
    /** Models that are open on it, and its segmenter, as its newest heartbeat said. */
    loaded: z.array(short()).max(LOADED_MAX).optional(),
    /** The sizes, pixels a side, that these models are open for, as its newest heartbeat said. */
    loaded_sizes: loadedSizes().optional(),
    /** Whether its direct line is open, as its newest heartbeat said. */
    line: z.boolean().optional(),
    /** TensorRT's version and the GPU that engines are built for; without both there is none. */
    trtexec: z.object({ version: z.string().max(40), gpu: z.string().max(200) }).optional(),
    engine: z
      .object({
        torch: z.string().max(40).meta({ description: "version of torch" }),
        source: z.enum(["system", "wheel"]).meta({
          description: "whether that is the machine's own or the one of `npm run engine`",
        }),
        precision: z.enum(["fp32", "bf16", "measured"]).meta({
          description: "of a training step; `measured`: a run takes the faster one",
        }),
        reason: z.string().max(200).meta({ description: "why in that precision" }),
        devices: Count.meta({
          description:
            "on so many a run's processes can train as one: its slot's cores, or one GPU",
        }),
      })
      .meta({ description: "what it trains with; left out without one" })
      .optional(),
    /** Tasks it works on at once. */
    slots: Count,
    /** What it cannot do and what to install, one sentence each. */
    missing: z.array(short()).max(MISSING_MAX),
  })
  .meta({ id: "Capabilities" });
export type Capabilities = z.infer<typeof Capabilities>;

export const RegisterNode = z.strictObject({
  code: short(),
  name: z.string().min(1).max(100),
  capabilities: Capabilities,
});
export const RegisteredNode = z.object({ node_id: z.uuid(), node_token: z.string() });

export const ClaimRequest = z.strictObject({
  kinds: kinds().min(1),
  /** How long an empty queue is waited on; 0 answers at once. */
  wait_seconds: z.number().int().min(0).max(30).default(0),
});
/** What a node's socket is sent when a task was enqueued that the node takes. */
export const WorkCall = z.object({
  type: z.literal("work"),
  /** The answer names it. */
  call: Count,
  kind: z.string(),
});
export type WorkCall = z.infer<typeof WorkCall>;
/**
 * What became of a call: the claim after it gave a task or found none, or the node has no room for
 * tasks of the kind.
 */
export const WorkAnswer = z.object({
  type: z.literal("answer"),
  call: Count,
  outcome: z.enum(["taken", "none", "busy"]),
});
export type WorkAnswer = z.infer<typeof WorkAnswer>;

export const ClaimedTask = z
  .object({
    task_id: z.uuid(),
    kind: z.string(),
    fence: z.number().int(),
    attempt: z.number().int(),
    lease_until: z.iso.datetime(),
    payload: z.record(z.string(), z.unknown()),
    more: z
      .boolean()
      .meta({ description: "whether further tasks of the kinds that were asked for are due" }),
  })
  .meta({ id: "ClaimedTask" });
export type ClaimedTask = z.infer<typeof ClaimedTask>;

export const HeartbeatRequest = z.object({
  tasks: z.array(z.object({ task_id: z.uuid(), fence: Fence })).max(HELD_MAX),
  draining: z.boolean().default(false),
  /**
   * Models that are open on the node, and its segmenter: the next request for one of them is a fast
   * one.
   */
  loaded: z.array(z.string().max(100)).max(LOADED_MAX).optional(),
  /**
   * The sizes of image, pixels a side, that each of these models is open for: at another one it is
   * to be opened first.
   */
  loaded_sizes: loadedSizes().optional(),
  /** Whether its direct line is open. */
  line: z.boolean().optional(),
  capabilities: Capabilities.optional(),
});
/**
 * `cancel`: finish soon and keep what is done. `revoke`: end the process now, then report its
 * exit. `lost`: the lease is another's; end the process and report nothing.
 */
export const Verdict = z.enum(["go_on", "cancel", "revoke", "lost"]);
export type Verdict = z.infer<typeof Verdict>;
export const HeartbeatReply = z.object({
  tasks: z.array(z.object({ task_id: z.uuid(), verdict: Verdict })),
});

/** How far a task is, in the units of its kind: frames, images, batches. */
export const TaskProgress = z.object({
  done: z.number().min(0).max(Number.MAX_SAFE_INTEGER),
  total: z.number().min(0).max(Number.MAX_SAFE_INTEGER),
  /** What the task's subject shows beside it, such as the number of annotations so far. */
  detail: z.record(z.string(), z.unknown()).default({}),
});
export type TaskProgress = z.infer<typeof TaskProgress>;

export const ProgressReport = TaskProgress.extend({
  fence: Fence,
  partial: z.record(z.string(), z.unknown()).optional().meta({
    description: "what is done since the last report, in the shape of the kind's result",
  }),
}).strict();
/** Progress, and what of the result may be used already. */
export type TaskReport = Omit<z.infer<typeof ProgressReport>, "fence">;

/** How a task's attempt ended. `exited` says that its process was seen to be gone. */
export const Outcome = z.discriminatedUnion("outcome", [
  z.strictObject({ outcome: z.literal("finished"), result: z.record(z.string(), z.unknown()) }),
  z.strictObject({
    outcome: z.literal("failed"),
    code: short(),
    detail: z.string().max(FAILURE_CHARACTERS_MAX),
    retryable: z.boolean(),
  }),
  /** After the verdict `cancel`, with what was done until then. */
  z.strictObject({
    outcome: z.literal("cancelled"),
    result: z.record(z.string(), z.unknown()).nullable(),
  }),
  /** After the verdict `revoke`. */
  z.strictObject({ outcome: z.literal("revoked"), exited: z.literal(true) }),
  /** Not now: the node drains, or lacks what the task needs. */
  z.strictObject({ outcome: z.literal("snoozed"), seconds: z.number().int().min(0).max(3600) }),
]);
export type Outcome = z.infer<typeof Outcome>;
export const FinishRequest = z.strictObject({ fence: Fence, outcome: Outcome });

/** Types of objects that a node may write beside its payload's targets: none that browsers run. */
export const TARGET_TYPES = [
  "application/octet-stream",
  "application/json",
  "text/plain",
  "text/csv",
  "image/png",
  "image/jpeg",
  "video/mp4",
] as const;
export type TargetType = (typeof TARGET_TYPES)[number];

/** Bytes that one PUT of S3 takes. */
export const PUT_BYTES_MAX = 5 * 1024 ** 3;

const written = {
  fence: Fence,
  /** What will be written, and nothing else: the address is bound to both. */
  bytes: z.number().int().min(0).max(PUT_BYTES_MAX),
  md5: z.string().regex(/^[0-9a-f]{32}$/, "must be an MD5 in lowercase hex"),
};
/** Asks where to write an object: a target of the task's payload, or a new one under a name. */
export const TargetRequest = z
  .union([
    z.strictObject({
      ...written,
      name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, "must be a plain file name"),
      content_type: z.enum(TARGET_TYPES),
    }),
    z.strictObject({ ...written, key: z.string().max(KEY_CHARACTERS_MAX) }),
  ])
  .meta({
    example: {
      fence: 1,
      name: "results.png",
      content_type: "image/png",
      bytes: 48_213,
      md5: "900150983cd24fb0d6963f7d28e17f72",
    },
  });
/** Where to write an object, once: a PUT with these headers, begun within minutes. */
export const WriteAddress = z
  .object({ url: z.url(), key: z.string(), headers: z.record(z.string(), z.string()) })
  .meta({ id: "WriteAddress" });
export type WriteAddress = z.infer<typeof WriteAddress>;

/** Asks for a new address of an object that the payload names: the first may have run out. */
export const SourceRequest = z.strictObject({
  fence: Fence,
  key: z.string().max(KEY_CHARACTERS_MAX),
});
