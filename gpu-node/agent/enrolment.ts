// Who the device is to the service: the token that its code was traded for and the keys that it
// believes, in a file of this user alone. And the lock that keeps two agents from one folder.

import { createHash, randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { Secret } from "../../shared/secret.ts";
import { ManifestKey } from "../../shared/wire/fleet.ts";
import { lives, ownName } from "../base/processes.ts";
import { flushFolder, readIfThere, writeDurably } from "./durable-file.ts";

const EnrolmentFile = z.object({
  url: z.string(),
  device_id: z.uuid(),
  token: z.string().min(1),
  token_since: z.number(),
  interval_s: z.number().positive(),
  keys: z.array(ManifestKey),
  /** The folder may still hold the log and the models of a device before this one. */
  is_new: z.boolean(),
});

/** What a device is known by, and whom it believes. */
export interface Enrolment {
  deviceId: string;
  token: Secret;
  /** When the token was given, epoch milliseconds. */
  tokenSince: number;
  intervalSeconds: number;
  /** Keys that manifests are believed by. */
  keys: ManifestKey[];
}

const fileOf = (dir: string) => join(dir, "device.json");

/** The enrolment that this folder has at a service; null where it has none there. */
export function readEnrolment(dir: string, url: string): Enrolment | null {
  const text = readIfThere(fileOf(dir));
  if (text === null) return null;
  let kept: z.infer<typeof EnrolmentFile>;
  try {
    kept = EnrolmentFile.parse(JSON.parse(text));
  } catch (thrown) {
    const advice = `${fileOf(dir)} is not whole: delete it and enrol with a new code`;
    throw new Error(advice, { cause: thrown });
  }
  if (kept.url !== url) return null;
  const one: Enrolment = {
    deviceId: kept.device_id,
    token: new Secret(kept.token),
    tokenSince: kept.token_since,
    intervalSeconds: kept.interval_s,
    keys: kept.keys,
  };
  if (kept.is_new) {
    setFormerAside(dir);
    writeEnrolment(dir, url, one);
  }
  return one;
}

/**
 * Keeps the enrolment of a new device: nothing that a device before it has seen is told as its own.
 */
export function replaceEnrolment(dir: string, url: string, one: Enrolment): void {
  // Kept before anything else, since its code opens no other time: a cut after it goes on there.
  writeEnrolment(dir, url, one, true);
  setFormerAside(dir);
  writeEnrolment(dir, url, one);
  fs.rmSync(join(dir, "nonce.json"), { force: true });
}

const NonceRequest = z.object({ url: z.string(), code_sha256: z.string(), nonce: z.string() });
const NONCE_BYTES = 32;

/**
 * The nonce with which a code is traded at a service, on the disk before this returns: whoever asks
 * again, after a cut too, asks with the same one.
 */
export function nonceFor(dir: string, url: string, code: Secret): string {
  const path = join(dir, "nonce.json");
  const code_sha256 = createHash("sha256").update(code.reveal()).digest("hex");
  const asked = NonceRequest.safeParse(jsonOf(readIfThere(path)));
  if (asked.data?.url === url && asked.data.code_sha256 === code_sha256) return asked.data.nonce;
  const nonce = randomBytes(NONCE_BYTES).toString("base64url");
  writeDurably(path, JSON.stringify({ url, code_sha256, nonce }));
  return nonce;
}

function jsonOf(text: string | null): unknown {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return null;
  }
}

/** Moves the log and the state of a device before this one away, and forgets its models. */
function setFormerAside(dir: string) {
  for (const name of ["logs", "images", "state.json", "figures.json", "seen.ndjson"]) {
    if (!fs.existsSync(join(dir, name))) continue;
    const aside = join(dir, "former", name);
    fs.mkdirSync(join(dir, "former"), { recursive: true, mode: 0o700 });
    fs.rmSync(aside, { recursive: true, force: true });
    fs.renameSync(join(dir, name), aside);
  }
  fs.rmSync(join(dir, "slots"), { recursive: true, force: true });
  flushFolder(dir);
}

/** Keeps an enrolment, whole or not at all. */
export function writeEnrolment(dir: string, url: string, one: Enrolment, isNew = false): void {
  const kept: z.infer<typeof EnrolmentFile> = {
    url,
    device_id: one.deviceId,
    token: one.token.reveal(),
    token_since: one.tokenSince,
    interval_s: one.intervalSeconds,
    keys: one.keys,
    is_new: isNew,
  };
  writeDurably(fileOf(dir), JSON.stringify(kept));
}

/** Makes the folder and takes its lock; returns the way to give it back. */
export function lockDevice(dir: string): () => void {
  fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
  const file = join(dir, "lock");
  for (;;) {
    try {
      fs.writeFileSync(file, ownName(), { flag: "wx", mode: 0o600 });
      return () => fs.rmSync(file, { force: true });
    } catch (thrown) {
      if ((thrown as { code?: string }).code !== "EEXIST") throw thrown;
    }
    const holder = readIfThere(file) ?? "";
    if (lives(holder)) {
      const pid = holder.split("-")[0];
      throw new Error(
        `an agent (pid ${pid}) already runs on ${dir}; another needs its own VANTAGE_DEVICE_DIR`,
      );
    }
    fs.rmSync(file, { force: true });
  }
}
