// Shadows of named endpoints, with nodes whose end the test holds. Goal: a shadow sees what was
// answered and changes no answer; what it finds otherwise is counted, and so is what was let go.

import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { LINE_STATUS, type LineAnswer, type LineHeadOf } from "../../../../shared/tasks/line.ts";
import {
  answering,
  createEndpointWorld,
  type EndpointWorld,
  FOUND,
} from "../../../support/endpoint-world.ts";
import type { AnsweringNode, AnsweringOptions } from "../../../support/line-end.ts";
import type { RegisteredModel } from "../../../support/registered-model.ts";
import type { Person } from "../../../support/scripted-node.ts";

let w: EndpointWorld;
let admin: Person;
let one: RegisteredModel;
let two: RegisteredModel;
beforeAll(async () => {
  w = await createEndpointWorld();
  ({ admin } = w);
});
beforeEach(async () => {
  ({ one, two } = await w.fresh());
});
afterEach(() => w.cutNodes());

const make = (more?: Record<string, unknown>) => w.make(more);
const opened = (options?: Partial<AnsweringOptions>) => w.opened(options);
const predict: EndpointWorld["predict"] = (...request) => w.predict(...request);
const status: EndpointWorld["status"] = (...of) => w.status(...of);
const counted: EndpointWorld["counted"] = (...of) => w.counted(...of);

describe("a shadow", () => {
  const seen = (node: AnsweringNode, model: RegisteredModel) =>
    node.asked.filter((head) => head.model.model_id === model.model_id).length;
  const mirrored = async (slug: string, count: number) => {
    await expect
      .poll(async () => (await status(slug)).windows["1h"].shadows[0]?.mirrored ?? 0)
      .toBe(count);
    return (await status(slug)).windows["1h"].shadows[0];
  };

  it("sees the images after the answer, and what differs is counted", async () => {
    const shadowAnswer: LineAnswer = {
      ...FOUND,
      predictions: [
        { class: "disc", confidence: 0.8, bbox: [1, 2, 30, 40] },
        { class: "disc", confidence: 0.7, bbox: [40, 2, 60, 40] },
        { class: "star", confidence: 0.9, bbox: [33, 30, 39, 47] },
        { class: "disc", confidence: 0.26, bbox: [0, 0, 5, 5] },
      ],
    };
    const node = await opened({
      answer: ({ model }) => ({ body: model.model_id === two.model_id ? shadowAnswer : FOUND }),
    });
    const { slug } = await make({
      confidence: 0.28,
      shadow: { model_id: two.model_id, share: 1 },
    });
    const answers = await Promise.all([1, 2, 3].map(() => predict(slug)));
    for (const answer of answers) {
      expect(answer.headers.get("X-Model-Id")).toBe(one.model_id);
      expect(await answer.json()).toEqual(FOUND.predictions);
    }
    // Of each image: the first disc; a star that is a disc; a disc and a star that only one saw.
    expect(await mirrored(slug, 3)).toEqual({
      model_id: two.model_id,
      mirrored: 3,
      compared: 3,
      shed: {},
      failed: 0,
      matched: 3,
      other_class: 3,
      only_live: 3,
      only_shadow: 3,
      mean_iou: 1,
    });
    expect(seen(node, two)).toBe(3);
    // It is nobody's request.
    expect((await counted(slug, 3)).models).toMatchObject([
      { model_id: one.model_id, requests: 3 },
    ]);
  });

  it("begins after the answer", async () => {
    const events: string[] = [];
    let held = Promise.withResolvers<void>();
    await opened({
      answer: async ({ model }) => {
        const isShadow = model.model_id === two.model_id;
        events.push(isShadow ? "shadow asked" : "request asked");
        if (!isShadow) await held.promise;
        if (!isShadow) events.push("request answered");
        return answering();
      },
    });
    const { slug } = await make({ shadow: { model_id: two.model_id, share: 1 } });
    for (let round = 1; round <= 3; round++) {
      const answer = predict(slug);
      await expect.poll(() => events.at(-1)).toBe("request asked");
      // Requests that came later have been answered: a shadow that went along would be there.
      for (let other = 0; other < 3; other++) await status(slug);
      held.resolve();
      expect((await answer).status).toBe(200);
      await mirrored(slug, round);
      held = Promise.withResolvers<void>();
    }
    const order = ["request asked", "request answered", "shadow asked"];
    expect(events).toEqual([...order, ...order, ...order]);
  });

  it("is off where there is none, and after it was taken away", async () => {
    const node = await opened();
    const { slug } = await make({ shadow: { model_id: two.model_id } });
    await admin.ok("PATCH", `/endpoints/${slug}`, { shadow: null });
    await predict(slug);
    expect((await counted(slug, 1)).shadows).toEqual([]);
    expect(seen(node, two)).toBe(0);
  });

  it("is shed and counted beyond what may be under way, and no request waits for it", async () => {
    const held = Promise.withResolvers<void>();
    const node = await opened({
      capacity: 32,
      answer: async ({ model }: LineHeadOf<"predict">) => {
        if (model.model_id === two.model_id) await held.promise;
        return answering();
      },
    });
    const { slug } = await make({ shadow: { model_id: two.model_id } });
    for (let index = 0; index < 10; index++) expect((await predict(slug)).status).toBe(200);
    await expect.poll(() => seen(node, two)).toBe(4);
    expect(await mirrored(slug, 6)).toMatchObject({ compared: 0, shed: { busy: 6 } });
    held.resolve();
    expect(await mirrored(slug, 10)).toMatchObject({ compared: 4, shed: { busy: 6 }, failed: 0 });
    expect(seen(node, two)).toBe(4);
  });

  it("does not take the only place of a node", async () => {
    const node = await opened({ capacity: 1 });
    const { slug } = await make({ shadow: { model_id: two.model_id } });
    await predict(slug);
    expect(await mirrored(slug, 1)).toMatchObject({ compared: 0, shed: { nodes_full: 1 } });
    expect(seen(node, two)).toBe(0);
  });

  it("leaves a node's last places to requests, and fails alone", async () => {
    let broken = false;
    const held = Promise.withResolvers<void>();
    const node = await opened({
      capacity: 2,
      answer: async ({ model }: LineHeadOf<"predict">) => {
        if (model.model_id !== two.model_id) return answering();
        if (broken)
          return { status: LINE_STATUS.refused, body: { code: "internal", detail: "no" } };
        await held.promise;
        return answering();
      },
    });
    const { slug } = await make({ shadow: { model_id: two.model_id } });
    await predict(slug);
    await expect.poll(() => seen(node, two)).toBe(1);
    // One of two places is a shadow's: no second one gets in, and requests do.
    for (let index = 0; index < 3; index++) expect((await predict(slug)).status).toBe(200);
    expect(await mirrored(slug, 3)).toMatchObject({ shed: { nodes_full: 3 } });
    held.resolve();
    await mirrored(slug, 4);
    broken = true;
    expect((await predict(slug)).status).toBe(200);
    expect(await mirrored(slug, 5)).toMatchObject({ compared: 1, failed: 1 });
  });
});
