// What a device believes: a manifest that one of its keys signed, that is for this device, and that
// is no older than the last one. Nothing of it is read before its signature was verified.

import { createPublicKey, verify } from "node:crypto";
import type { ManifestKey } from "../../shared/wire/fleet.ts";
import {
  MANIFEST_DOMAIN,
  Manifest,
  PUBLIC_KEY_BYTES,
  SIGNATURE_BYTES,
  type SignedManifest,
} from "../../shared/wire/rollouts.ts";

/** Why a device does not take a model; `code` is the first word of what it reports. */
export class ModelRefusal extends Error {
  override readonly name = "ModelRefusal";
  readonly code: string;

  constructor(code: string, detail: string, options: { cause?: unknown } = {}) {
    super(`${code}: ${detail}`.slice(0, 500), options);
    this.code = code;
  }
}

/** Whether a signature in base64url is one of the bytes by a key. */
function isSigned(key: ManifestKey, signature: string, bytes: Buffer): boolean {
  try {
    const raw = Buffer.from(key.public_key, "base64url");
    const signed = Buffer.from(signature, "base64url");
    if (raw.length !== PUBLIC_KEY_BYTES || signed.length !== SIGNATURE_BYTES) return false;
    const jwk = { kty: "OKP", crv: "Ed25519", x: key.public_key };
    return verify(null, bytes, createPublicKey({ key: jwk, format: "jwk" }), signed);
  } catch {
    return false;
  }
}

/** What a manifest is believed by. */
export interface Belief {
  deviceId: string;
  keys: readonly ManifestKey[];
  /** The version that was taken last. */
  seen: string;
}

/**
 * The manifest of a signed one. Fails with a ModelRefusal: `bad_signature`, `bad_manifest`,
 * `wrong_device` or `stale_manifest`.
 */
export function believed({ manifest: text, signatures }: SignedManifest, belief: Belief): Manifest {
  const bytes = Buffer.from(MANIFEST_DOMAIN + text, "utf8");
  const isBelieved = signatures.some(({ key_id, signature }) => {
    const key = belief.keys.find((one) => one.key_id === key_id);
    return key !== undefined && isSigned(key, signature, bytes);
  });
  if (!isBelieved) {
    throw new ModelRefusal("bad_signature", "no key that this device knows signed the manifest");
  }
  let manifest: Manifest;
  try {
    manifest = Manifest.parse(JSON.parse(text));
  } catch (thrown) {
    const detail = "the manifest is of a layout that this agent does not know";
    throw new ModelRefusal("bad_manifest", detail, { cause: thrown });
  }
  if (manifest.device_id !== belief.deviceId) {
    throw new ModelRefusal("wrong_device", "the manifest is another device's");
  }
  if (BigInt(manifest.version) < BigInt(belief.seen)) {
    const detail = `the manifest is of version ${manifest.version}, and ${belief.seen} was taken`;
    throw new ModelRefusal("stale_manifest", detail);
  }
  return manifest;
}
