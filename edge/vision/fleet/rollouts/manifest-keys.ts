// The keys that manifests are signed with: Ed25519, each derived from a secret of the configuration
// for this use alone. All of them sign, so a device that knows one of them goes on while they are
// replaced, and every manifest tells it the others.

import { Failure } from "../../../../shared/errors.ts";
import type { Secret } from "../../../../shared/secret.ts";
import type { ManifestKey } from "../../../../shared/wire/fleet.ts";
import {
  MANIFEST_DOMAIN,
  type Manifest,
  type SignedManifest,
} from "../../../../shared/wire/rollouts.ts";
import { fromBase64url, toBase64url, toHex } from "../../auth/digest.ts";
import { keyFor } from "../../auth/tokens.ts";
import type { Parts } from "../../base/parts.ts";

/** PKCS #8 of an Ed25519 private key, up to its 32 bytes (RFC 8410, section 7). */
const PKCS8_PREFIX = Uint8Array.from([
  ...[0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70],
  ...[0x04, 0x22, 0x04, 0x20],
]);
/** Bytes of a key's SHA-256 that name it. */
const KEY_ID_BYTES = 8;

interface SigningKey extends ManifestKey {
  private: CryptoKey;
}

// Keys, not promises of them: a promise of one request must not be awaited by another.
const keys = new WeakMap<Secret, SigningKey>();

async function signingKey(secret: Secret): Promise<SigningKey> {
  const known = keys.get(secret);
  if (known) return known;
  const { bytes } = await keyFor(secret, "device manifests");
  const pkcs8 = new Uint8Array([...PKCS8_PREFIX, ...bytes]);
  const algorithm = { name: "Ed25519" };
  const imported = await crypto.subtle.importKey("pkcs8", pkcs8, algorithm, true, ["sign"]);
  // The cast names the one form of both runtimes' types that has the public half.
  const { x = "" } = (await crypto.subtle.exportKey("jwk", imported)) as JsonWebKey;
  const digest = await crypto.subtle.digest("SHA-256", new Uint8Array(fromBase64url(x)));
  const key_id = toHex(new Uint8Array(digest).subarray(0, KEY_ID_BYTES));
  const made: SigningKey = { key_id, public_key: x, private: imported };
  keys.set(secret, made);
  return made;
}

/** Fails with `bad_configuration` where no key is configured: nothing could be rolled out. */
export function assertSigning({ signingSecrets }: Pick<Parts, "signingSecrets">): void {
  if (signingSecrets.length > 0) return;
  throw new Failure(
    "bad_configuration",
    "DEVICE_SIGNING_KEY is not set: no manifest can be signed",
  );
}

/** The public halves of the keys, the newest first; none where none is configured. */
export async function manifestKeys({
  signingSecrets,
}: Pick<Parts, "signingSecrets">): Promise<ManifestKey[]> {
  const all: ManifestKey[] = [];
  for (const secret of signingSecrets) {
    const { key_id, public_key } = await signingKey(secret);
    all.push({ key_id, public_key });
  }
  return all;
}

/** A value as JSON whose members are in the order of their names, at every depth. */
function orderedJson(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([name], [other]) => (name < other ? -1 : 1)))
      : one,
  );
}

/** A manifest's text, signed with every key. The same manifest and keys give the same bytes. */
export async function signManifest(
  parts: Pick<Parts, "signingSecrets">,
  manifest: Manifest,
): Promise<SignedManifest> {
  assertSigning(parts);
  const text = orderedJson(manifest);
  const bytes = new TextEncoder().encode(MANIFEST_DOMAIN + text);
  const signatures: SignedManifest["signatures"] = [];
  for (const secret of parts.signingSecrets) {
    const key = await signingKey(secret);
    const signed = await crypto.subtle.sign({ name: "Ed25519" }, key.private, bytes);
    signatures.push({ key_id: key.key_id, signature: toBase64url(new Uint8Array(signed)) });
  }
  return { manifest: text, signatures };
}
