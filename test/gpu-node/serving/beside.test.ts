// Predictions beside each other in one process of a node: an image waits for no video, whoever is
// ended takes only his neighbours' time, and the service hears which models are open.

import { readFileSync } from "node:fs";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ModelSource } from "../../../shared/tasks/tasks.ts";
import { rectangles, toolsOrSay } from "../../support/clips.ts";
import { startNode } from "../../support/gpu-node.ts";
import {
  type NodeService,
  type ServedTask,
  startNodeService,
  until,
} from "../../support/node-service.ts";
import { generatedModel } from "../../support/weights.ts";

const found = toolsOrSay();
let service: NodeService;
let model: ModelSource;
let image: Buffer;

beforeEach(async () => {
  service = await startNodeService();
  model = generatedModel((key, bytes) => service.source(key, bytes), { image_size: 160 });
  const size = { width: 64, height: 48, channels: 3, background: "#a52" } as const;
  image = await sharp({ create: size }).png().toBuffer();
});
afterEach(() => service.close());

const start = () => startNode({ VANTAGE_URL: service.url, VANTAGE_NODE_TOKEN: service.token });

const predict = (video = service.source(crypto.randomUUID(), image)): ServedTask =>
  service.enqueue("predict", { model, video, fps: null, frames_max: 3_000, confidence: 0.9 });
/** 600 frames: several times as long as what happens beside it. */
const longOne = () => predict(service.source(crypto.randomUUID(), readFileSync(rectangles(60))));

const ended = (task: ServedTask) => until("the task ends", () => task.state === "ended");
const begun = (task: ServedTask) => until("it looks at frames", () => task.progress.length > 0);
const outcomes = ({ outcomes: all }: ServedTask) => all.map(({ outcome }) => outcome);

describe.skipIf(!found)("a node", () => {
  it("looks at pictures while it looks at a video, in one process", async () => {
    const node = start();
    const video = longOne();
    await begun(video);
    const images = Array.from({ length: 5 }, () => predict());
    await Promise.all(images.map(ended));
    expect(video.state).toBe("running");
    await ended(video);
    expect([video, ...images].flatMap(outcomes)).toEqual(Array(6).fill("finished"));
    expect(node.lines().filter(({ event }) => event === "child_started")).toHaveLength(1);
    expect(node.lines().filter(({ event }) => event === "model_opened")).toHaveLength(1);
    expect(service.heartbeats.at(-1)).toMatchObject({ loaded: [model.model_id] });
  });

  it("gives back what was beside a task whose process had to end", async () => {
    const node = start();
    const [one, other] = [longOne(), longOne()];
    await Promise.all([begun(one), begun(other)]);
    one.verdict = "revoke";
    await ended(one);
    await ended(other);
    expect(outcomes(one)).toEqual(["revoked"]);
    expect(outcomes(other)).toEqual(["snoozed", "finished"]);
    expect(node.lines().filter(({ event }) => event === "child_started")).toHaveLength(2);
  });

  it("cancels one and lets the other go on", async () => {
    start();
    const [one, other] = [longOne(), longOne()];
    await Promise.all([begun(one), begun(other)]);
    one.verdict = "cancel";
    await ended(one);
    expect(outcomes(one)).toEqual(["cancelled"]);
    await ended(other);
    expect(outcomes(other)).toEqual(["finished"]);
  });
});
