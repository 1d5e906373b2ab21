// Configuration of a device: its environment and arguments, parsed once. Every bad key is named, no
// value ever is; secrets are wrapped so that printing one shows nothing.

import { resolve } from "node:path";
import { z } from "zod";
import { Failure } from "../../shared/errors.ts";
import { decimal, flag, whole } from "../../shared/scalars.ts";
import { Secret } from "../../shared/secret.ts";
import type { OutboxRules } from "./image-outbox.ts";

/** Addresses of cameras that ffmpeg opens; anything else is a path. */
export const CAMERA = /^(rtsps?|https?):\/\//;

/** Its text is shown and kept, so it may hold no secret. */
function isPlain(address: string): boolean {
  const url = URL.parse(address);
  return !url || `${url.username}${url.password}${url.search}${url.hash}` === "";
}

const MIB = 1024 ** 2;
const RANGE = /^\d(\.\d{1,6})?-\d(\.\d{1,6})?$/;

const Environment = z.object({
  /** Address of the vision service, such as `https://vision.example.com`. Required, no default. */
  VANTAGE_URL: z
    .url({ error: "must be the vision service's address", protocol: /^https?$/ })
    .refine(isPlain, "must be an address without a user, query or fragment"),
  /** One-time code of an engineer, exchanged for a token at the first start. */
  VANTAGE_DEVICE_CODE: z
    .string()
    .optional()
    .transform((value) => (value ? new Secret(value) : undefined)),
  /** Identity, models and logs. Default `.vantage/device`. */
  VANTAGE_DEVICE_DIR: z.string().min(1).default(".vantage/device"),
  /**
   * A folder of images, a video, or a camera's address. Default: none, and nothing is predicted.
   */
  VANTAGE_DEVICE_SOURCE: z.string().optional(),
  /** `true`: a folder or video begins again at its end, for trials. Default: no. */
  VANTAGE_DEVICE_REPEAT: flag().default(false),
  /** Images a second that are looked at, at most. Default 1. */
  VANTAGE_DEVICE_FPS: decimal((number) => number.min(0.001).max(240)).default(1),
  /** What models may take on the disk, bytes; both slots and a download. Default 1 GiB. */
  VANTAGE_DEVICE_MODEL_BYTES: whole(1).default(1024 * MIB),
  /** What logs may take on the disk, bytes; the oldest lines go. Default 64 MiB. */
  VANTAGE_DEVICE_LOG_BYTES: whole(65_536).default(64 * MIB),
  /**
   * Images that show an object of such a confidence are sent along, such as `0.3-0.6`: from, and
   * below. Default: none are.
   */
  VANTAGE_DEVICE_UNCERTAIN: z
    .string()
    .regex(RANGE, "must be two confidences from 0 to 1, such as 0.3-0.6")
    .transform((text) => {
      const [from = 0, below = 0] = text.split("-").map(Number);
      return { from, below };
    })
    .refine(({ from, below }) => from < below && below <= 1, "must rise, up to 1")
    .optional(),
  /** Seconds between two images that are sent along, at least. Default 300. */
  VANTAGE_DEVICE_IMAGE_SECONDS: decimal((number) => number.min(0).max(86_400)).default(300),
  /** What such images may take on the disk while the service is away, bytes. Default 64 MiB. */
  VANTAGE_DEVICE_IMAGE_BYTES: whole(0).default(64 * MIB),
  /** Threads of the runtime. Default 2. */
  VANTAGE_DEVICE_THREADS: whole(1, 64).default(2),
  /**
   * Seconds in which a model has to open, and to look at an image: one that takes longer is given
   * up by ending the process. Default 60.
   */
  VANTAGE_DEVICE_LOOK_SECONDS: decimal((number) => number.min(1).max(3_600)).default(60),
  /** Where ffmpeg is looked for. The system's own. */
  PATH: z.string().default("/usr/local/bin:/usr/bin:/bin"),
});

/** What a device is told by whoever starts it. */
export interface DeviceConfig {
  url: string;
  code: Secret | undefined;
  dir: string;
  source: string | null;
  repeat: boolean;
  fps: number;
  modelBytesMax: number;
  logBytesMax: number;
  images: OutboxRules;
  threads: number;
  lookSeconds: number;
  path: string;
}

const FLAGS = { "--code": "VANTAGE_DEVICE_CODE", "--source": "VANTAGE_DEVICE_SOURCE" } as const;

/** The environment with what the arguments say in its place; fails for any other argument. */
function withArguments(
  environment: Readonly<Record<string, string | undefined>>,
  args: readonly string[],
): Record<string, string | undefined> {
  const merged = { ...environment };
  for (let at = 0; at < args.length; at += 2) {
    const name = args[at] ?? "";
    const key = Object.hasOwn(FLAGS, name) ? FLAGS[name as keyof typeof FLAGS] : undefined;
    const value = args[at + 1];
    if (!key || !value) {
      throw new Failure("bad_configuration", `it takes no ${name} ${value ?? ""}; see --help`);
    }
    merged[key] = value;
  }
  return merged;
}

/** Parses environment and arguments, or fails with `bad_configuration` naming every bad key. */
export function parseDeviceConfig(
  environment: Readonly<Record<string, string | undefined>>,
  args: readonly string[] = [],
): DeviceConfig {
  // A variable that is set to nothing counts as unset.
  const set = Object.fromEntries(
    Object.entries(withArguments(environment, args)).filter(([, value]) => Boolean(value)),
  );
  const parsed = Environment.safeParse(set);
  if (!parsed.success) {
    const keys = parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`);
    throw new Failure("bad_configuration", `bad configuration: ${keys.join("; ")}`);
  }
  const values = parsed.data;
  const source = values.VANTAGE_DEVICE_SOURCE ?? null;
  return {
    url: values.VANTAGE_URL.replace(/\/+$/, ""),
    code: values.VANTAGE_DEVICE_CODE,
    dir: resolve(values.VANTAGE_DEVICE_DIR),
    source: source === null || CAMERA.test(source) ? source : resolve(source),
    repeat: values.VANTAGE_DEVICE_REPEAT,
    fps: values.VANTAGE_DEVICE_FPS,
    modelBytesMax: values.VANTAGE_DEVICE_MODEL_BYTES,
    logBytesMax: values.VANTAGE_DEVICE_LOG_BYTES,
    images: {
      uncertain: values.VANTAGE_DEVICE_UNCERTAIN ?? null,
      secondsApart: values.VANTAGE_DEVICE_IMAGE_SECONDS,
      bytesMax: values.VANTAGE_DEVICE_IMAGE_BYTES,
    },
    threads: values.VANTAGE_DEVICE_THREADS,
    lookSeconds: values.VANTAGE_DEVICE_LOOK_SECONDS,
    path: values.PATH,
  };
}
