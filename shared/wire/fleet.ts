// Wire shapes of edge devices: what they are, what they report, the logs that they hand over. Times
// are UTC; boxes are corners in pixels of the image that the device looked at.

import { z } from "zod";
import { pixels } from "../shapes.ts";

const instant = () => z.iso.datetime();
/** What a device says of its own clock: UTC as `Z`, or an offset, as Python's libraries write. */
const deviceInstant = () => z.iso.datetime({ offset: true });
const count = () => z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const TEXT_MAX = 200;
// Neither NUL nor half a surrogate pair: the database stores none.
const short = (max = TEXT_MAX) =>
  z
    .string()
    .max(max)
    .refine((given) => !given.includes("\0"), "must not hold a NUL character")
    .refine((given) => given.isWellFormed(), "must not hold half a surrogate pair")
    .meta({ pattern: "^[^\\u0000]*$" });

/** Seconds between two beats of a device, where nobody says otherwise. */
export const INTERVAL_SECONDS = 60;
export const INTERVAL_SECONDS_MIN = 5;
export const INTERVAL_SECONDS_MAX = 86_400;
/** A device is online for so many intervals after a beat, then late, and after these lost. */
export const ONLINE_INTERVALS = 2.5;
export const LATE_INTERVALS = 10;
/** Tags of a device. */
export const DEVICE_TAGS_MAX = 20;
/** Bytes of a heartbeat. */
export const HEARTBEAT_BYTES_MAX = 16 * 1024;
/** Lines of one batch of logs, bytes of it as JSON, and ranges that it may say were dropped. */
export const LOG_LINES_MAX = 1_000;
export const LOG_BYTES_MAX = 4 * 1024 * 1024;
/** Bytes of one line as JSON: more than its named fields take, however many objects it has. */
export const LOG_LINE_BYTES_MAX = 256 * 1024;
export const DROPPED_RANGES_MAX = 100;
/** Ranges of missing lines that an answer names, and that a boot may have. */
export const LOG_GAPS_MAX = 100;
/** Objects of one line. */
export const LOG_OBJECTS_MAX = 300;
/** Bytes of an image that a device sends along. */
export const DEVICE_IMAGE_BYTES_MAX = 8 * 1024 * 1024;

/** `never`: it never sent a heartbeat. */
export const DEVICE_STATES = ["online", "late", "lost", "never"] as const;
export type DeviceState = (typeof DEVICE_STATES)[number];

export const DEVICE_ALERTS = ["lost", "hot", "low_battery"] as const;

/** How far a device is with the model that is wanted of it. */
export const MODEL_STATES = [
  "pending",
  "downloading",
  "verifying",
  "staged",
  "active",
  "confirmed",
  "rolled_back",
  "failed",
] as const;
export type ModelState = (typeof MODEL_STATES)[number];

/** Bins of a distribution of scores: tenths of 0 to 1, the last one with 1. */
export const SCORE_BINS = 10;

/** A boot of a device's agent; numbers of lines count up within it. */
export const BootId = z
  .string()
  .regex(/^[\w-]{1,64}$/, "must be 1 to 64 letters, digits, hyphens and underscores")
  .meta({ description: "one boot of the device: numbers of log lines count up within it" });

const latency = () => z.number().min(0).max(3_600_000);

/** What a device says of the model that it runs, or is about to. */
export const ReportedModel = z
  .looseObject({
    rollout_id: z.uuid().nullable().default(null).meta({ description: "that brought it" }),
    model_id: z.uuid().nullable().default(null),
    export_id: z.uuid().nullable().default(null).meta({ description: "the file that it is" }),
    version: short().nullable().default(null),
    slot: z.enum(["a", "b"]).nullable().default(null).meta({ description: "that it lies in" }),
    status: z.enum(MODEL_STATES).meta({ description: "how far the device is with it" }),
    failure: short(500).nullable().default(null).meta({ description: "why it was not taken" }),
    inferences: count().optional().meta({ description: "made with it, since it was switched to" }),
    failures: count().optional().meta({ description: "inferences with it that failed" }),
    crashes: count().optional().meta({ description: "starts of the agent on it that ended badly" }),
    latency_p50_ms: latency().optional().meta({ description: "median of an inference" }),
    latency_p95_ms: latency().optional().meta({
      description: "milliseconds that 95 of 100 inferences take at most",
    }),
    scores: z
      .array(count())
      .min(SCORE_BINS)
      .max(SCORE_BINS)
      .optional()
      .meta({ description: "detections with it by score, in tenths from 0 to 1" }),
  })
  .meta({ id: "ReportedModel" });
export type ReportedModel = z.infer<typeof ReportedModel>;

const battery = () =>
  z.number().min(0).max(100).nullable().meta({ description: "percent; null where there is none" });
const temperature = () =>
  z.number().min(-100).max(200).nullable().meta({ description: "degrees Celsius" });
const uptime = () => z.number().min(0).max(1e10).nullable().meta({ description: "seconds" });
const freeBytes = () => count().nullable().meta({ description: "that its disk has left" });
const rate = () =>
  z.number().min(0).max(1e6).nullable().meta({ description: "inferences a second" });

/** What a device reports; fields that are not named here are kept as they come. */
export const Heartbeat = z
  .looseObject({
    battery: battery().default(null),
    temperature: temperature().default(null),
    uptime: uptime().default(null),
    free_bytes: freeBytes().default(null),
    inference_rate: rate().default(null),
    agent_version: short(100).nullable().default(null).meta({
      description: "of the program that speaks",
    }),
    boot_id: BootId.nullable().default(null),
    // `.nullable()` would have descriptions name the shape with its null.
    model: z.union([ReportedModel, z.null()]).default(null).meta({
      description: "the model that it runs, or is about to; null where it has none",
    }),
    time: deviceInstant().nullable().default(null).meta({
      description: "by its own clock, which is reported and never believed",
    }),
  })
  .meta({ id: "Heartbeat" });
export type Heartbeat = z.infer<typeof Heartbeat>;

/** What is wanted of a device. */
export const DesiredModel = z
  .object({
    rollout_id: z.uuid().meta({ description: "that wants it" }),
    model_id: z.uuid(),
    export_id: z.uuid().meta({ description: "the model's file" }),
    version: z.string().meta({ description: "rises with each manifest" }),
    manifest_url: z.string().meta({ description: "where its signed manifest is" }),
  })
  .meta({ id: "DesiredModel" });
export type DesiredModel = z.infer<typeof DesiredModel>;

export const HeartbeatAnswer = z
  .object({
    server_time: instant().meta({ description: "by the service's clock" }),
    clock_skew_s: z.number().nullable().meta({
      description: "seconds that the device's clock is ahead; null where it did not say its time",
    }),
    next_s: z.number().meta({ description: "seconds until the next heartbeat is due" }),
    desired: z
      .union([DesiredModel, z.null()])
      .meta({ description: "the model that is wanted of it; null where none is" }),
  })
  .meta({ id: "HeartbeatAnswer" });
export type HeartbeatAnswer = z.infer<typeof HeartbeatAnswer>;

export const Device = z
  .object({
    device_id: z.uuid().meta({ description: "the device's id" }),
    workspace_id: z.uuid(),
    name: z.string(),
    group: z.string().nullable().meta({ description: "rollouts go to groups; null is none" }),
    tags: z.array(z.string()).meta({ description: "words to find it by" }),
    project_id: z.uuid().nullable().meta({
      description: "where images that it sends along land; null takes none",
    }),
    status: z.enum(DEVICE_STATES).meta({
      description:
        "`online`: its last heartbeat is less than 2.5 intervals old; `late`: less than 10; `lost`: " +
        "older; `never`: it never sent one",
    }),
    interval_s: z.number().int().meta({ description: "seconds between its heartbeats" }),
    enrolled_at: instant().nullable().meta({ description: "null until its code was used" }),
    revoked_at: instant().nullable().meta({ description: "null while it may come" }),
    last_heartbeat_at: instant().nullable(),
    platform: z.string().nullable().meta({ description: "what it is, by its own account" }),
    runtime: z.string().nullable().meta({ description: "what it runs models with" }),
    agent_version: z.string().nullable().meta({ description: "of the program that speaks" }),
    battery: battery(),
    temperature: temperature(),
    uptime: uptime(),
    free_bytes: freeBytes(),
    inference_rate: rate(),
    boot_id: z.string().nullable().meta({ description: "its boot, by its last heartbeat" }),
    clock_skew_s: z.number().nullable().meta({ description: "seconds that its clock is ahead" }),
    model: z
      .union([ReportedModel, z.null()])
      .meta({ description: "what it says that it runs; null where it says nothing" }),
    extra: z.record(z.string(), z.unknown()).meta({
      description: "what else its last heartbeat held",
    }),
    alerts: z.array(z.enum(DEVICE_ALERTS)).meta({ description: "what is wrong with it now" }),
    created_at: instant(),
    updated_at: instant().meta({ description: "when people last changed it" }),
  })
  .meta({ id: "Device" });
export type Device = z.infer<typeof Device>;

export const EnrolmentCode = z
  .object({
    enrolment_code: z.string().meta({ description: "for the device, once; shown only here" }),
    expires_at: instant(),
  })
  .meta({ id: "EnrolmentCode" });
export type EnrolmentCode = z.infer<typeof EnrolmentCode>;

/** A device's own secret: at least 16 random bytes in base64url. */
const NONCE = /^[\w-]{22,86}$/;

/** What a device says of itself as it enrols. */
export const EnrolDevice = z.object({
  code: short(100).min(1).meta({ description: "the enrolment code, as it was shown" }),
  agent_version: short(100).min(1).meta({ description: "of the program that speaks" }),
  platform: short().min(1).meta({ description: "system and machine, such as `linux-arm64`" }),
  runtime: short().min(1).meta({ description: "what runs models, with its version" }),
  nonce: z
    .string()
    .regex(NONCE, "must be 22 to 86 letters, digits, hyphens and underscores")
    .optional()
    .meta({
      description:
        "16 random bytes or more in base64url, which the device keeps before it asks: the same code " +
        "with the same nonce is answered again while the code would open, so a lost answer locks " +
        "nobody out",
    }),
});

export type EnrolDevice = z.infer<typeof EnrolDevice>;

/** A public key that manifests are signed with. */
export const ManifestKey = z
  .object({
    key_id: z.string().meta({ description: "as manifests name it" }),
    public_key: z.string().meta({ description: "Ed25519, 32 bytes in base64url" }),
  })
  .meta({ id: "ManifestKey" });
export type ManifestKey = z.infer<typeof ManifestKey>;

export const EnrolledDevice = z
  .object({
    device_id: z.uuid().meta({ description: "the device's id" }),
    token: z.string().meta({ description: "for `Authorization: Bearer`; shown only here" }),
    interval_s: z.number().int().meta({ description: "seconds between its heartbeats" }),
    manifest_keys: z.array(ManifestKey).meta({
      description: "what manifests are signed with: the newest first",
    }),
  })
  .meta({ id: "EnrolledDevice" });
export type EnrolledDevice = z.infer<typeof EnrolledDevice>;

export const DeviceToken = z
  .object({
    token: z.string().meta({ description: "for `Authorization: Bearer`; shown only here" }),
    overlap_s: z.number().int().meta({
      description: "seconds that the former token opens after the first use of this one",
    }),
    manifest_keys: z
      .array(ManifestKey)
      .default([])
      .meta({ description: "as at enrolment: for a device that has none yet" }),
  })
  .meta({ id: "DeviceToken" });
export type DeviceToken = z.infer<typeof DeviceToken>;

/** Readings of one heartbeat, or means of those of a quarter of an hour. */
export const DeviceReading = z
  .object({
    at: instant().meta({ description: "when it came, or where its quarter of an hour begins" }),
    beats: count().meta({ description: "heartbeats that it is the mean of" }),
    battery: battery(),
    temperature: temperature(),
    uptime: uptime(),
    free_bytes: z.number().nullable().meta({ description: "that its disk has left" }),
    inference_rate: rate(),
  })
  .meta({ id: "DeviceReading" });
export type DeviceReading = z.infer<typeof DeviceReading>;

/** An object as a device saw it. */
export const LoggedObject = z.object({
  class: short().min(1),
  confidence: z.number().min(0).max(1),
  bbox: z
    .tuple([pixels(), pixels(), pixels(), pixels()])
    .meta({ description: "[x1, y1, x2, y2], pixels of the device's image" }),
});
export type LoggedObject = z.infer<typeof LoggedObject>;

/** A line of a device's log. Fields that are not named here are kept as they come. */
export const LogLine = z
  .looseObject({
    seq: z
      .number()
      .int()
      .min(1)
      .max(Number.MAX_SAFE_INTEGER - 1)
      .meta({ description: "counts up by one within a boot, from 1" }),
    time: deviceInstant().meta({ description: "by the device's clock" }),
    kind: z
      .string()
      .regex(/^[a-z][a-z_]{0,31}$/, "must be a lowercase word")
      .default("prediction")
      .meta({ description: "`prediction`, or another word of the device's own" }),
    source: short().nullable().default(null).meta({ description: "camera, video or file" }),
    frame: count().nullable().default(null).meta({ description: "index in its source, from 0" }),
    objects: z
      .array(LoggedObject)
      .max(LOG_OBJECTS_MAX)
      .default([])
      .meta({ description: "what the model saw" }),
    latency_ms: latency().nullable().default(null).meta({
      description: "milliseconds that the inference took",
    }),
    model_id: z.uuid().nullable().default(null).meta({ description: "the model that looked" }),
    version: short().nullable().default(null).meta({ description: "of its manifest" }),
    message: short(2_000).nullable().default(null).meta({ description: "for people" }),
  })
  .meta({ id: "LogLine" });
export type LogLine = z.infer<typeof LogLine>;

/** Numbers of lines, both inclusive. */
export const SeqRange = z
  .object({
    from: z
      .number()
      .int()
      .min(1)
      .max(Number.MAX_SAFE_INTEGER - 1),
    to: z
      .number()
      .int()
      .min(1)
      .max(Number.MAX_SAFE_INTEGER - 1),
  })
  .refine(({ from, to }) => from <= to, "must not end before it begins")
  .meta({ id: "SeqRange", description: "numbers of lines, both inclusive" });
export type SeqRange = z.infer<typeof SeqRange>;

/** A batch of a device's log. */
export const LogBatch = z.object({
  boot_id: BootId,
  lines: z.array(LogLine).max(LOG_LINES_MAX).meta({ description: "in any order" }),
  dropped: z.array(SeqRange).max(DROPPED_RANGES_MAX).default([]).meta({
    description: "lines that the device had to let go of, and that will never come",
  }),
});
export type LogBatch = z.infer<typeof LogBatch>;

export const LogReceipt = z
  .object({
    boot_id: z.string().meta({ description: "the boot that the numbers are of" }),
    acked_seq: count().meta({
      description: "every line up to this one is stored, or was dropped: the device may forget it",
    }),
    stored: count().meta({ description: "lines of this batch that are new" }),
    duplicates: count().meta({ description: "lines of this batch that were known" }),
    gaps: z.array(SeqRange).meta({
      description: "lines after `acked_seq` that are missing, the first hundred ranges",
    }),
  })
  .meta({ id: "LogReceipt" });
export type LogReceipt = z.infer<typeof LogReceipt>;

/** Where a device is hot and its battery low, unless the workspace says otherwise. */
export const HOT_CELSIUS = 80;
export const LOW_BATTERY = 15;

/** What a workspace wants to be told of its devices. */
export const FleetSettings = z
  .object({
    workspace_id: z.uuid(),
    hot_c: z.number().nullable().meta({
      description: "degrees Celsius from which a device is hot; null: none is",
    }),
    low_battery: z.number().nullable().meta({
      description: "percent up to which a battery is low; null: none is",
    }),
    webhook: z.boolean().meta({ description: "whether there is a webhook; it is never shown" }),
  })
  .meta({ id: "FleetSettings" });
export type FleetSettings = z.infer<typeof FleetSettings>;

export const DeviceAlert = z
  .object({
    alert_id: z.uuid().meta({ description: "the alert's id" }),
    device_id: z.uuid().meta({ description: "the device's id" }),
    device_name: z.string().meta({ description: "the device's name, as it is now" }),
    kind: z.enum(DEVICE_ALERTS).meta({ description: "what is wrong" }),
    value: z.number().nullable().meta({ description: "the reading that raised it" }),
    raised_at: instant().meta({ description: "when it was noticed" }),
    recovered_at: instant().nullable().meta({ description: "when it was over; null while it is" }),
    delivery: z.enum(["pending", "delivered", "given_up", "unsent"]).meta({
      description: "what became of its newest message; `unsent`: there was no webhook",
    }),
    last_error: z.string().nullable().meta({ description: "why the newest attempt failed" }),
  })
  .meta({ id: "DeviceAlert" });
export type DeviceAlert = z.infer<typeof DeviceAlert>;

/** An image that a device sent along. */
export const DeviceImage = z
  .object({
    video_id: z.uuid().meta({ description: "the video of one frame that it became" }),
    duplicate: z.boolean().meta({
      description: "whether an image that looks the same was there: then it is that one's",
    }),
  })
  .meta({ id: "DeviceImage" });
export type DeviceImage = z.infer<typeof DeviceImage>;
