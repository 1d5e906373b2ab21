// The state folder: where everything of an embedded stack lies, its random credentials, and the
// lock that keeps two stacks from sharing it.

import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";

/** The checkout's folder. */
export const ROOT = resolve(import.meta.dirname, "../..");

/** The checkout's own state folder, which git ignores. */
const OWN = join(ROOT, ".vantage");

/** Paths inside a state folder. */
export interface State {
  dir: string;
  postgres: string;
  workers: string;
  logs: string;
  operatorToken: string;
  metricsToken: string;
  /** Where a running stack is reached, for the job command. */
  running: string;
}

/** The state folder: `VANTAGE_STATE`, or `.vantage` in the checkout. */
export function stateAt(dir = process.env.VANTAGE_STATE || OWN): State {
  const path = (name: string) => join(resolve(dir), name);
  return {
    dir: resolve(dir),
    postgres: path("postgres"),
    workers: path("workers"),
    logs: path("logs"),
    operatorToken: path("operator-token"),
    metricsToken: path("metrics-token"),
    running: path("running.json"),
  };
}

const MARKER = "vantage-state";
/** May lie in a folder before anything else: of the stack whose backup is restored into it. */
const CREDENTIALS = "credentials.json";

const Credentials = z.object({
  superuser: z.string().min(1),
  marketsReader: z.string().min(1),
  marketsWriter: z.string().min(1),
  visionWriter: z.string().min(1),
  graphReader: z.string().min(1),
  graphWriter: z.string().min(1),
  s3AccessKeyId: z.string().min(1),
  s3SecretAccessKey: z.string().min(1),
  tokenSecret: z.string().min(32),
  deviceSigningKey: z.string().min(32),
  sealingKey: z.string().min(32),
});

/** Passwords of the database roles and of the object store's S3 endpoint. */
export type Credentials = z.infer<typeof Credentials>;

/** A secret of 192 bits, as a text. */
export const randomSecret = (): string => randomBytes(24).toString("base64url");

/** What a stack's services and its users know of each other. */
interface StateSecrets {
  credentials: Credentials;
  operatorToken: string;
  metricsToken: string;
}

/** Creates the folders and, at random, every credential that there is none of yet. */
export function prepareState(state: State): StateSecrets {
  ensureFolder(state);
  for (const dir of [state.workers, state.logs]) {
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
  }
  const credentials = prepareCredentials(state);
  const tokenIn = (file: string) => {
    if (!fs.existsSync(file)) writePrivate(file, `${randomSecret()}\n`);
    return fs.readFileSync(file, "utf8").trim();
  };
  return {
    credentials,
    operatorToken: tokenIn(state.operatorToken),
    metricsToken: tokenIn(state.metricsToken),
  };
}

/** Credentials of a folder, with new ones for roles that it has none of yet. */
function prepareCredentials(state: State): Credentials {
  const file = join(state.dir, CREDENTIALS);
  const saved = fs.existsSync(file)
    ? Credentials.partial().parse(JSON.parse(fs.readFileSync(file, "utf8")))
    : {};
  if (!saved.superuser && fs.existsSync(state.postgres)) {
    throw new Error(
      `${file} is gone or not whole, and without it the database is locked; ` +
        "npm start -- --reset starts over",
    );
  }
  const names = Object.keys(Credentials.shape) as (keyof Credentials)[];
  const missing = names.filter((name) => !saved[name]);
  const added = Object.fromEntries(missing.map((name) => [name, randomSecret()]));
  const credentials = Credentials.parse({ ...saved, ...added });
  if (missing.length > 0) writePrivate(file, JSON.stringify(credentials));
  return credentials;
}

/** Written beside and renamed, so that a killed start leaves the whole file or none. */
export function writePrivate(path: string, text: string) {
  fs.writeFileSync(`${path}.new`, text, { mode: 0o600 });
  fs.renameSync(`${path}.new`, path);
}

/**
 * Takes the folder's lock, or fails naming the process that holds it. Returns the way to release
 * it.
 */
export function lockState(state: State): () => void {
  const file = join(state.dir, "lock");
  ensureFolder(state);
  const mine = JSON.stringify({ pid: process.pid, started: startedAt(process.pid) });
  for (;;) {
    try {
      fs.writeFileSync(file, mine, { flag: "wx", mode: 0o600 });
      return () => fs.rmSync(file, { force: true });
    } catch (thrown) {
      if ((thrown as { code?: string }).code !== "EEXIST") throw thrown;
    }
    const holder = lockHolder(state);
    if (holder) {
      const advice = `stop it with Ctrl-C there or: kill ${holder.pid}. Another folder: VANTAGE_STATE=…`;
      throw new Error(`a stack (pid ${holder.pid}) already runs on ${state.dir}; ${advice}`);
    }
    fs.rmSync(file, { force: true });
  }
}

/** The living process that holds the folder's lock, if any. */
export function lockHolder(state: State): { pid: number } | null {
  try {
    const text = fs.readFileSync(join(state.dir, "lock"), "utf8");
    const { pid, started } = JSON.parse(text) as { pid: number; started: string };
    return startedAt(pid) === started ? { pid } : null;
  } catch {
    return null;
  }
}

/** When a process started, in clock ticks since boot: tells a reused pid from the old one. */
function startedAt(pid: number): string | null {
  try {
    return fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[19] ?? null;
  } catch {
    return null;
  }
}

/** A state folder inside another, which is taken first: made and marked, or refused. */
export function stateWithin(parent: State, name: string): State {
  ensureFolder(parent);
  return stateAt(join(parent.dir, name));
}

/**
 * Makes the folder, or checks that it is one of ours, and marks it, so that nothing of anybody
 * else's ever lies in it and `--reset` can delete it whole. The checkout's own is ours by its path,
 * whichever of our commands came first; any other begins new or empty.
 */
function ensureFolder({ dir }: State) {
  const marker = join(dir, MARKER);
  if (fs.existsSync(marker)) return;
  const isNew = !fs.existsSync(dir);
  const isForeign = (name: string) => name !== CREDENTIALS;
  if (!isNew && dir !== OWN && fs.readdirSync(dir).some(isForeign)) {
    throw new Error(`${dir} is not empty and no state folder: choose a new one for VANTAGE_STATE`);
  }
  fs.mkdirSync(dir, { recursive: true });
  // Passing through is allowed, since the database's own user may have to; looking is not.
  if (isNew || dir === OWN) fs.chmodSync(dir, 0o711);
  fs.writeFileSync(
    marker,
    "State of an embedded Vantage stack. npm start -- --reset deletes it.\n",
  );
}

/** Torch's wheels: gigabytes that are no state, and that `npm run engine -- remove` takes away. */
const STAYS = "engine";

/** Deletes a state folder, and nothing that is not one. */
export function removeState({ dir }: State) {
  if (!fs.existsSync(join(dir, MARKER))) {
    throw new Error(`${dir} does not look like a state folder; nothing was deleted`);
  }
  for (const name of fs.readdirSync(dir)) {
    if (name !== STAYS) fs.rmSync(join(dir, name), { recursive: true, force: true });
  }
  // The folder may be a link to one.
  if (!fs.existsSync(join(dir, STAYS))) fs.rmSync(dir, { recursive: true, force: true });
}
