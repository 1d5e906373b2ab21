// Secrets at rest. Goal: an envelope opens with its key, for its purpose and row, and in no other
// way; keys can be exchanged.

import { createDecipheriv, createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { seal, unseal } from "../../../edge/vision/base/sealing.ts";
import { Secret } from "../../../shared/secret.ts";

const OLD = new Secret("the old key of 32 characters or more");
const NEW = new Secret("the new key of 32 characters or more");
const use = { purpose: "target credential", rowId: "row 1" };
const failure = { code: "bad_configuration" };

describe("a sealed secret", () => {
  it("opens with the key that sealed it", async () => {
    const envelope = await seal([OLD], use, "hunter2 é");
    expect(envelope).toMatch(/^v1\.[\w-]{8}\.[\w-]{16}\.[\w-]+$/);
    expect((await unseal([OLD], use, envelope)).reveal()).toBe("hunter2 é");
  });

  it("is another each time, of one text too", async () => {
    const envelopes = await Promise.all([1, 2, 3].map(() => seal([OLD], use, "same")));
    expect(new Set(envelopes).size).toBe(3);
  });

  it("opens after a newer key was put first, and is sealed with that from then on", async () => {
    const envelope = await seal([OLD], use, "a");
    expect((await unseal([NEW, OLD], use, envelope)).reveal()).toBe("a");
    const renewed = await seal([NEW, OLD], use, "a");
    expect((await unseal([NEW], use, renewed)).reveal()).toBe("a");
    await expect(unseal([NEW], use, envelope)).rejects.toMatchObject(failure);
  });

  it.each([
    ["another purpose", { ...use, purpose: "fleet webhook" }],
    ["another row", { ...use, rowId: "row 2" }],
  ])("does not open for %s", async (_, other) => {
    const envelope = await seal([OLD], use, "a");
    await expect(unseal([OLD], other, envelope)).rejects.toMatchObject(failure);
  });

  it("does not open where a bit of it was changed", async () => {
    const envelope = await seal([OLD], use, "a secret");
    const [version, key, nonce, sealed = ""] = envelope.split(".");
    const bytes = Buffer.from(sealed, "base64url");
    for (let bit = 0; bit < bytes.length * 8; bit += 7) {
      const changed = Buffer.from(bytes);
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      const forged = [version, key, nonce, changed.toString("base64url")].join(".");
      await expect(unseal([OLD], use, forged)).rejects.toMatchObject(failure);
    }
    for (const text of ["", "v1", "v2.a.b.c", "v1.!.!.!"]) {
      await expect(unseal([OLD], use, text)).rejects.toMatchObject(failure);
    }
  });

  it("is none where the service has no key", async () => {
    await expect(seal(undefined, use, "a")).rejects.toMatchObject(failure);
    const envelope = await seal([OLD], use, "a");
    await expect(unseal(undefined, use, envelope)).rejects.toMatchObject(failure);
  });

  it("is AES-256-GCM of a key that Node derives alike", async () => {
    const envelope = await seal([OLD], use, "checked elsewhere");
    const [, , nonce = "", sealed = ""] = envelope.split(".");
    const key = createHmac("sha256", OLD.reveal()).update("vantage sealing v1").digest();
    const bytes = Buffer.from(sealed, "base64url");
    const opened = createDecipheriv("aes-256-gcm", key, Buffer.from(nonce, "base64url"));
    opened.setAAD(Buffer.from(`${use.purpose} ${use.rowId}`));
    opened.setAuthTag(bytes.subarray(-16));
    const text = Buffer.concat([opened.update(bytes.subarray(0, -16)), opened.final()]);
    expect(text.toString()).toBe("checked elsewhere");
  });
});
