// What sinks ask for: only descriptions with names of secrets, no more often than they may, and
// images with what was seen on them where it lies.

import { describe, expect, it } from "vitest";
import { z } from "zod";
import { portsFor, problemFor } from "../../../shared/workflow/block.ts";
import {
  DatasetUploadEffect,
  SINK_BLOCKS,
  WebhookEffect,
} from "../../../shared/workflow/blocks/sinks.ts";
import { runBlock } from "../../support/workflow-steps.ts";

const run = runBlock(SINK_BLOCKS);
const blockOf = (type: string) => {
  const block = SINK_BLOCKS.find((one) => one.type === type);
  if (!block) throw new Error(`no ${type}`);
  return block;
};
const frame = { width: 100, height: 100, offset: [0, 0], scale: [1, 1] };
const object = (confidence: number, bbox = [10, 10, 30, 30]) => ({
  class: "car",
  confidence,
  bbox,
});

describe("a webhook", () => {
  const url = "https://example.com/hook";

  it("is described by an effect of its schema that names secrets and tells none", async () => {
    const { effects, outputs } = await run(
      "webhook@1",
      {
        payload: { detections: { frame, objects: [object(0.5)] } },
        image: { frame },
        signing_secret: "signer",
        header_x_api_key: "receiver_key",
      },
      { parameters: { url, headers: { "X-Camera": "gate 3" }, secret_headers: ["X-Api-Key"] } },
    );
    expect(outputs.sent).toBe(true);
    expect(effects).toEqual([
      {
        kind: "webhook",
        image: { frame },
        request: {
          url,
          url_secret: null,
          headers: { "X-Camera": "gate 3" },
          secret_headers: { "X-Api-Key": "receiver_key" },
          signing_secret: "signer",
          payload: { detections: { frame, objects: [object(0.5)] } },
        },
      },
    ]);
    expect(WebhookEffect.parse(effects?.[0]?.request)).toEqual(effects?.[0]?.request);
  });

  it("asks for the address as a secret where its parameters hold none", async () => {
    const block = blockOf("webhook@1");
    const parameters = block.parameters.parse({ secret_headers: ["Authorization"] });
    const { inputs } = portsFor(block, parameters);
    expect(inputs.url_secret).toMatchObject({ kind: "secret" });
    expect(inputs.header_authorization).toMatchObject({ kind: "secret" });
    const { effects } = await run("webhook@1", { payload: 1, url_secret: "address" }, {});
    expect(effects?.[0]?.request).toMatchObject({ url: null, url_secret: "address", payload: 1 });
  });

  it.each([
    { url: "ftp://example.com" },
    { url: "https://user:word@example.com/" },
    { url: "example.com/hook" },
    { url, headers: { Host: "internal" } },
    { url, headers: { "webhook-signature": "v1,x" } },
    { url, headers: { "CF-Connecting-IP": "10.0.0.1" } },
    { url, headers: { Upgrade: "websocket" } },
    { url, headers: { Expect: "100-continue" } },
    { url, headers: { "Proxy-Authorization": "x" } },
    { url, headers: { "X-A": "a\r\nX-B: b" } },
    { url, secret_headers: ["Content-Length"] },
  ])("is refused with the parameters %j", (parameters) => {
    expect(blockOf("webhook@1").parameters.safeParse(parameters).success).toBe(false);
  });

  it("is refused when a header is given twice, whatever its letters", () => {
    const block = blockOf("webhook@1");
    const twice = { url, headers: { "X-Key": "a" }, secret_headers: ["x-key"] };
    expect(problemFor(block, block.parameters.parse(twice))).toMatch(/given twice/);
  });

  it("waits for its cooldown, and refuses a payload that is too large", async () => {
    const parameters = { url, cooldown_seconds: 5 };
    const first = await run("webhook@1", { payload: 1 }, { parameters, now: 1_000 });
    const next = (now: number) =>
      run("webhook@1", { payload: 1 }, { parameters, now, state: first.state });
    expect((await next(5_999)).outputs).toEqual({ sent: false, reason: "cooling down" });
    expect((await next(5_999)).effects ?? []).toEqual([]);
    expect((await next(6_000)).outputs.sent).toBe(true);
    await expect(
      run("webhook@1", { payload: "x".repeat(300_000) }, { parameters: { url } }),
    ).rejects.toThrow(/256000 are allowed/);
  });
});

describe("a dataset upload", () => {
  const project = "11111111-1111-4111-8111-111111111111";
  const upload = (objects: object[], parameters: object = {}, rest: object = {}) =>
    run(
      "dataset_upload@1",
      { image: { frame }, detections: { frame, objects }, project },
      { parameters, ...rest },
    );

  it("takes only images with an object that the model is unsure of", async () => {
    const range = { confidence_min: 0.3, confidence_max: 0.6 };
    expect((await upload([object(0.9), object(0.4)], range)).outputs.sent).toBe(true);
    expect((await upload([object(0.9), object(0.1)], range)).outputs.sent).toBe(false);
    expect((await upload([], range)).effects ?? []).toEqual([]);
    const turned = { confidence_min: 0.7, confidence_max: 0.6 };
    expect(problemFor(blockOf("dataset_upload@1"), turned)).toMatch(/above/);
  });

  it("takes a share of them that is the same for the same frames, and about as large", async () => {
    const draw = async () => {
      const sent: unknown[] = [];
      for (let now = 0; now < 2_000; now++) {
        const { outputs } = await upload([object(0.5)], { share: 0.25 }, { now });
        sent.push(outputs.sent);
      }
      return sent;
    };
    const sent = await draw();
    expect(await draw()).toEqual(sent);
    const count = sent.filter(Boolean).length;
    expect(count).toBeGreaterThan(420);
    expect(count).toBeLessThan(580);
  });

  it("takes no more of them within a minute than it may", async () => {
    let state: unknown = null;
    let count = 0;
    for (let now = 0; now < 120_000; now += 1_000) {
      const result = await upload([object(0.5)], { per_minute_max: 5 }, { now, state });
      state = JSON.parse(JSON.stringify(result.state));
      if (result.outputs.sent) count++;
    }
    expect(count).toBe(10);
  });

  it("puts objects that were found on another image where they lie on this one", async () => {
    const crop = { width: 40, height: 40, offset: [20, 20], scale: [0.5, 0.5] };
    const { effects } = await run(
      "dataset_upload@1",
      {
        image: { frame: crop },
        detections: {
          frame,
          objects: [object(0.5, [10, 10, 30, 30]), object(0.5, [60, 60, 70, 70])],
        },
        project,
      },
      { parameters: { tags: ["unsure"] } },
    );
    const request = DatasetUploadEffect.parse(effects?.[0]?.request);
    expect(request).toEqual({
      project,
      tags: ["unsure"],
      objects: [{ class: "car", confidence: 0.5, bbox: [0, 0, 20, 20] }],
    });
  });

  it("says its parameters as a JSON schema, as every block", () => {
    for (const { parameters } of SINK_BLOCKS) {
      expect(z.toJSONSchema(parameters, { io: "input" })).toMatchObject({ type: "object" });
    }
  });
});
