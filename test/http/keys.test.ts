// Comparison of secrets: its result, and that its work does not depend on what was sent.

import { afterEach, expect, it, vi } from "vitest";
import { sameSecret } from "../../edge/http/keys.ts";
import { Secret } from "../../shared/secret.ts";

afterEach(() => vi.restoreAllMocks());

it.each([
  ["the key", true],
  ["the kez", false],
  ["the ke", false],
  ["the key ", false],
  ["x", false],
  ["", false],
])("hashes both sides of the comparison whatever was sent: %j is %s", async (given, same) => {
  const digest = vi.spyOn(crypto.subtle, "digest");
  expect(await sameSecret(given, new Secret("the key"))).toBe(same);
  expect(digest).toHaveBeenCalledTimes(2);
});
