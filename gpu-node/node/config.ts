// Configuration of a GPU node: its environment, parsed once by main. Every bad key is named, no
// value ever is; secrets are wrapped so that printing one shows nothing.

import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import { z } from "zod";
import { ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { Failure } from "../../shared/errors.ts";
import { whole } from "../../shared/scalars.ts";
import { Secret } from "../../shared/secret.ts";
import { withProvider } from "../onnx/cuda.ts";

const optionalSecret = () =>
  z
    .string()
    .optional()
    .transform((value) => (value ? new Secret(value) : undefined));

/** Its text is shown and kept, so it may hold no secret. */
function isPlain(address: string): boolean {
  const url = URL.parse(address);
  return !url || `${url.username}${url.password}${url.search}${url.hash}` === "";
}

const Environment = z.object({
  /** Address of the vision service, such as `http://localhost:8787`. Required, no default. */
  VANTAGE_URL: z
    .url({ error: "must be the vision service's address", protocol: /^https?$/ })
    .refine(isPlain, "must be an address without a user, query or fragment"),
  /** The node's token. Unset: the one of the state folder, else the code is exchanged for one. */
  VANTAGE_NODE_TOKEN: optionalSecret(),
  /** One-time code of an admin, exchanged for a token at the first start and never used again. */
  VANTAGE_NODE_CODE: optionalSecret(),
  /** What people see the node by. Default: the machine's name. */
  VANTAGE_NODE_NAME: z.string().max(100).optional(),
  /** State and cache. Default `.vantage/gpu-node`. */
  VANTAGE_NODE_DIR: z.string().min(1).default(".vantage/gpu-node"),
  /** Tasks at once, each in a process of its own. Default 1. */
  VANTAGE_NODE_SLOTS: whole(1, 64).default(1),
  /** What the cache of videos may take, bytes. Default 10 GiB. */
  VANTAGE_NODE_CACHE_BYTES: whole(0).default(10 * 1024 ** 3),
  /**
   * What open detectors may take of the memory, or of the GPU's, bytes, by an estimate; 0: one at a
   * time. Default: a quarter of it.
   */
  VANTAGE_NODE_MODELS_BYTES: whole(0).optional(),
  /** Where segmenter bundles are installed. Default: `.vantage/models` in the checkout. */
  VANTAGE_MODELS: z.string().optional(),
  /** Port of the status page on 127.0.0.1; 0 is none. Default 0. */
  VANTAGE_NODE_STATUS_PORT: whole(0, 65_535).default(0),
  /** How long running tasks may go on after the first SIGTERM. Default 30. */
  VANTAGE_NODE_DRAIN_SECONDS: whole(0, 86_400).default(30),
  /** Where ffmpeg and the like are looked for. The system's own. */
  PATH: z.string().default("/usr/local/bin:/usr/bin:/bin"),
});

export interface Config {
  url: string;
  token: Secret | undefined;
  code: Secret | undefined;
  name: string;
  dir: string;
  slots: number;
  cacheBytesMax: number;
  /** Null: a quarter of the memory. */
  modelsBytesMax: number | null;
  modelsDir: string;
  statusPort: number;
  drainSeconds: number;
  path: string;
  /**
   * What child processes inherit: the environment without the node's own keys, with the folders of
   * the libraries by which models use a GPU.
   */
  childEnvironment: Record<string, string>;
}

/** Where `npm run models` installs bundles, and nodes look for them. */
export const modelsDirOf = (environment: Readonly<Record<string, string | undefined>>): string =>
  environment.VANTAGE_MODELS
    ? resolve(environment.VANTAGE_MODELS)
    : join(import.meta.dirname, "../../.vantage/models");

/** Threads on which a child process decodes images and reads files: Node's own number, or more. */
const POOL_MIN = 4;
const POOL_MAX = 16;

/** Parses an environment, or fails with `bad_configuration` naming every bad key. */
export function parseConfig(
  environment: Readonly<Record<string, string | undefined>>,
  machineName: string,
): Config {
  // A variable that is set to nothing counts as unset.
  const set = Object.fromEntries(
    Object.entries(environment).filter((entry): entry is [string, string] => Boolean(entry[1])),
  );
  const parsed = Environment.safeParse(set);
  if (!parsed.success) {
    const keys = parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`);
    throw new Failure("bad_configuration", `bad configuration: ${keys.join("; ")}`);
  }
  const values = parsed.data;
  const dir = resolve(values.VANTAGE_NODE_DIR);
  return {
    url: values.VANTAGE_URL.replace(/\/+$/, ""),
    token: values.VANTAGE_NODE_TOKEN,
    code: values.VANTAGE_NODE_CODE,
    name: values.VANTAGE_NODE_NAME ?? machineName.slice(0, 100),
    dir,
    slots: values.VANTAGE_NODE_SLOTS,
    cacheBytesMax: values.VANTAGE_NODE_CACHE_BYTES,
    modelsBytesMax: values.VANTAGE_NODE_MODELS_BYTES ?? null,
    modelsDir: modelsDirOf(set),
    statusPort: values.VANTAGE_NODE_STATUS_PORT,
    drainSeconds: values.VANTAGE_NODE_DRAIN_SECONDS,
    path: values.PATH,
    childEnvironment: withProvider({
      ...ENGINE_ENVIRONMENT,
      UV_THREADPOOL_SIZE: String(Math.min(POOL_MAX, Math.max(POOL_MIN, availableParallelism()))),
      ...Object.fromEntries(Object.entries(set).filter(([name]) => !name.startsWith("VANTAGE_"))),
    }),
  };
}
