// Secrets of users at rest, such as credentials of targets: sealed by AES-256-GCM with keys that
// the database never sees. An envelope names its key, so that keys can be exchanged: the first one
// seals, and all open. It is bound to its purpose and its row, and opens nowhere else.

import { base64url } from "jose";
import { Failure } from "../../../shared/errors.ts";
import { Secret } from "../../../shared/secret.ts";

/** What seals and opens; the first key seals. Undefined where the service has none. */
export type SealingKeys = readonly Secret[] | undefined;

const VERSION = "v1";
const NONCE_BYTES = 12;
/** Characters of a key as it is configured. */
export const SEALING_KEY_MIN = 32;

interface SealingKey {
  id: string;
  /** As the platform imports it; its types and Node's have no name for it in common. */
  key: Awaited<ReturnType<typeof crypto.subtle.importKey>>;
}

// Keys, not promises of them: a promise of one request must not be awaited by another.
const imported = new WeakMap<Secret, SealingKey>();
const utf8 = new TextEncoder();

async function importedKey(secret: Secret): Promise<SealingKey> {
  const known = imported.get(secret);
  if (known) return known;
  const use = { name: "HMAC", hash: "SHA-256" };
  const raw = utf8.encode(secret.reveal());
  const master = await crypto.subtle.importKey("raw", raw, use, false, ["sign"]);
  const bytes = await crypto.subtle.sign("HMAC", master, utf8.encode("vantage sealing v1"));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const key = await crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
  const made = { id: base64url.encode(digest.subarray(0, 6)), key };
  imported.set(secret, made);
  return made;
}

/** What an envelope is bound to: a purpose, and the id of the row that holds it. */
export interface SealedFor {
  purpose: string;
  rowId: string;
}

const boundTo = ({ purpose, rowId }: SealedFor) => utf8.encode(`${purpose} ${rowId}`);

/** Seals a text as `v1.<key id>.<nonce>.<ciphertext>`; fails where the service has no key. */
export async function seal(keys: SealingKeys, use: SealedFor, text: string): Promise<string> {
  const [first] = keys ?? [];
  if (!first) throw noKey();
  const { id, key } = await importedKey(first);
  const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
  const how = { name: "AES-GCM", iv: nonce, additionalData: boundTo(use) };
  const sealed = new Uint8Array(await crypto.subtle.encrypt(how, key, utf8.encode(text)));
  return [VERSION, id, base64url.encode(nonce), base64url.encode(sealed)].join(".");
}

/**
 * Opens an envelope. Fails with `bad_configuration` where none of the keys is the one that sealed
 * it, and where it was changed or is another row's.
 */
export async function unseal(keys: SealingKeys, use: SealedFor, envelope: string): Promise<Secret> {
  const [version, id, nonce = "", sealed = ""] = envelope.split(".");
  for (const secret of version === VERSION ? (keys ?? []) : []) {
    const known = await importedKey(secret);
    if (known.id !== id) continue;
    try {
      const how = {
        name: "AES-GCM",
        iv: Uint8Array.from(base64url.decode(nonce)),
        additionalData: boundTo(use),
      };
      const bytes = Uint8Array.from(base64url.decode(sealed));
      return new Secret(
        new TextDecoder().decode(await crypto.subtle.decrypt(how, known.key, bytes)),
      );
    } catch (cause) {
      throw unopened(cause);
    }
  }
  throw unopened();
}

const noKey = () =>
  new Failure("bad_configuration", "bad configuration: SEALING_KEY: required to keep secrets", {
    data: { keys: ["SEALING_KEY"] },
  });

const unopened = (cause?: unknown) =>
  new Failure(
    "bad_configuration",
    "a sealed secret does not open with this service's SEALING_KEY: enter it anew",
    { cause, data: { keys: ["SEALING_KEY"] } },
  );
