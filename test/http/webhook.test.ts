// One attempt to deliver a webhook, to a receiver that checks signatures and one that misbehaves.

import { describe, expect, it } from "vitest";
import { isWebhookSecret, sendWebhook, signedHeaders } from "../../edge/http/webhook.ts";
import { Secret } from "../../shared/secret.ts";
import { startReceiver } from "../support/receiver.ts";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NOW = Date.parse("2026-06-18T14:35:00.700Z");
const message = { id: "msg_1", body: '{"type":"alert.failed"}' };
const unasked = () => Promise.reject(new Error("nobody asks for a name here"));

const target = (url: string, secret = SECRET) => ({
  url: new Secret(url),
  secret: new Secret(secret),
  allowPrivate: true,
  resolve: unasked,
});

describe("a signature", () => {
  it("is the specification's own example's", async () => {
    const given = { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", body: '{"test": 2432232314}' };
    const headers = await signedHeaders(given, new Secret(SECRET), 1_614_265_330_000);
    expect(headers).toEqual({
      "webhook-id": given.id,
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    });
  });

  it("needs a secret that is long enough", () => {
    expect([SECRET, "x".repeat(24)].map(isWebhookSecret)).toEqual([true, true]);
    const bad = ["", "x".repeat(23), "whsec_", "whsec_c2hvcnQ=", `whsec_${"!".repeat(40)}`];
    expect(bad.filter(isWebhookSecret)).toEqual([]);
  });
});

describe("an attempt", () => {
  it.each([SECRET, "a plain text of more than 24 characters"])(
    "is verified by a receiver that holds the secret %#",
    async (secret) => {
      const receiver = await startReceiver(secret);
      expect(await sendWebhook(message, target(receiver.url, secret), NOW)).toBeNull();
      expect(receiver.arrivals).toEqual([
        { id: "msg_1", verified: true, at: NOW - 700, body: { type: "alert.failed" } },
      ]);
      const wrong = target(receiver.url, "another text of more than 24 characters");
      await sendWebhook(message, wrong, NOW);
      expect(receiver.arrivals[1]?.verified).toBe(false);
    },
  );

  it("fails by the receiver's status, its silence and its absence, and says no address", async () => {
    const receiver = await startReceiver(SECRET);
    const reasons: (string | null)[] = [];
    receiver.answer = (response) => response.writeHead(500).end("x".repeat(1_000));
    reasons.push(await sendWebhook(message, target(receiver.url), NOW));
    receiver.answer = () => {};
    reasons.push(await sendWebhook(message, target(receiver.url), NOW));
    receiver.answer = (response) => response.destroy();
    reasons.push(await sendWebhook(message, target(receiver.url), NOW));
    reasons.push(await sendWebhook(message, target("http://127.0.0.1:1/s3cret?token=x"), NOW));
    expect(reasons).toEqual([
      "the receiver answered 500",
      "the receiver did not answer within 5 s",
      "the receiver could not be reached",
      "the receiver could not be reached",
    ]);
  });

  it("follows no redirect", async () => {
    const [inner, outer] = [await startReceiver(SECRET), await startReceiver(SECRET)];
    for (const status of [301, 302, 303, 307, 308]) {
      outer.answer = (response) => response.writeHead(status, { Location: inner.url }).end();
      const reason = await sendWebhook(message, target(outer.url), NOW);
      expect(reason).toContain(`answered ${status}`);
    }
    expect(inner.arrivals).toEqual([]);
  });

  it("goes to no private address, however it is named", async () => {
    const receiver = await startReceiver(SECRET);
    const guarded = { ...target(receiver.url), allowPrivate: false };
    expect(await sendWebhook(message, guarded, NOW)).toContain("does not begin with https://");
    const secure = new Secret(receiver.url.replace("http:", "https:"));
    expect(await sendWebhook(message, { ...guarded, url: secure }, NOW)).toContain("not public");
    const asked: string[] = [];
    const named = {
      ...guarded,
      url: new Secret("https://hooks.example.com/x"),
      resolve: async (name: string) => {
        asked.push(name);
        return ["203.0.114.1", "169.254.169.254"];
      },
    };
    expect(await sendWebhook(message, named, NOW)).toContain("not public");
    expect(asked).toEqual(["hooks.example.com"]);
    expect(receiver.arrivals).toEqual([]);
  });
});
