// Bytes as text: digests in hex, random values in base64url.

import { base64url } from "jose";

/** Bytes in lowercase hex. */
export const toHex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** SHA-256 of a text's UTF-8, in hex: what is stored of a secret, or compared of a body. */
export async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return toHex(new Uint8Array(digest));
}

/** Bytes in base64url, without padding. */
export const toBase64url = (bytes: Uint8Array): string => base64url.encode(bytes);
/** So many random bytes in base64url: a secret, or the part of one that nobody guesses. */
export const randomText = (bytes: number): string =>
  toBase64url(crypto.getRandomValues(new Uint8Array(bytes)));
/** The bytes of a text in base64url; throws for any other text. */
export const fromBase64url = (text: string): Uint8Array => base64url.decode(text);
