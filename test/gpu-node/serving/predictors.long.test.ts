// The models that a process has open. Goal: as many stay as fit by their bytes, those that were
// used last; one that is worked with is never closed under that work; nobody waits for ever.

import { describe, expect, it } from "vitest";
import { createLog } from "../../../gpu-node/base/log.ts";
import { readStill } from "../../../gpu-node/media/stills.ts";
import { answerDirectly, type LineReply } from "../../../gpu-node/serving/direct.ts";
import { estimatedBytes } from "../../../gpu-node/serving/model-memory.ts";
import { openPredictor, type Predictor } from "../../../gpu-node/serving/predictor.ts";
import { type OpenModels, Predictors } from "../../../gpu-node/serving/predictors.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { encodeAsk, LINE_STATUS, LineAnswer, type LineHeadOf } from "../../../shared/tasks/line.ts";
import type { ModelSource } from "../../../shared/tasks/tasks.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { noiseImage } from "../../support/noise.ts";
import { generatedModel } from "../../support/weights.ts";

let service: NodeService;
let context: RunnerContext;
beforeEachTask("predictors", (own) => {
  ({ service, context } = own);
});

const model = (more: Parameters<typeof generatedModel>[1] = {}) =>
  generatedModel((key, bytes) => service.source(key, bytes), { image_size: 32, ...more });
const { signal } = new AbortController();
const log = createLog(() => {});
const looked = (predictors: Predictors, asked: ModelSource) =>
  predictors.use(asked, signal, async ({ model: { model_id } }) => model_id);
/** Predictors with room for so many of the tests' models, and what they told last. */
function open(count: number) {
  const bytesMax = count * estimatedBytes(model(), "cpu");
  const told: OpenModels[] = [];
  const settings = { cpuThreads: 1, device: "cpu" as const, bytesMax };
  const predictors = new Predictors(context.cache, settings, log, (one) => told.push(one));
  return { predictors, told, ids: () => told.at(-1)?.modelIds };
}
const models = (count: number) =>
  Array.from({ length: count }, (_, index) => model({ seed: index + 1 })) as [
    ModelSource,
    ModelSource,
    ModelSource,
    ...ModelSource[],
  ];
/** Work that goes on until it is let go. */
function working(predictors: Predictors, asked: ModelSource) {
  const { promise, resolve: go } = Promise.withResolvers<void>();
  const began = Promise.withResolvers<Predictor>();
  const done = predictors.use(asked, signal, async (predictor) => {
    began.resolve(predictor);
    await promise;
    return predictor.predict(GREY, { confidence: 0 });
  });
  return { began: began.promise, go, done };
}
/** What else a node is asked on its line. */
const NOTHING_ELSE = {
  sam: () => Promise.reject(new Error("nobody asks a segmenter")),
  isSegmenterOpen: () => false,
  workflow: () => Promise.reject(new Error("nobody runs a workflow")),
};
/** What is asked of a model by the line, all that it finds. */
const headOf = (model: ModelSource) => ({
  kind: "predict" as const,
  // Its weights have an address, though the service's source may lack one.
  model: model as LineHeadOf<"predict">["model"],
  confidence: 0,
  may_evict: true,
});
const GREY = { data: new Uint8Array(32 * 32 * 3).fill(114), width: 32, height: 32 };
/** What has not happened by now waits for something. */
const aWhile = () => new Promise((done) => setTimeout(done, 200));

describe("models in memory", () => {
  it("are as many as fit, and three that share the traffic are opened once each", async () => {
    const { predictors, ids, told } = open(3);
    const [one, two, three] = models(3);
    for (let round = 0; round < 4; round++) {
      for (const asked of [one, two, three]) await looked(predictors, asked);
    }
    expect(ids()).toEqual([one, two, three].map(({ model_id }) => model_id));
    for (const { weights } of [one, two, three]) expect(service.reads.get(weights.key)).toBe(1);
    expect(told).toHaveLength(3);
    expect(told.at(-1)?.bytes).toBe(3 * estimatedBytes(one, "cpu"));
    await predictors.clear();
    expect(told.at(-1)).toEqual({ modelIds: [], sizes: {}, bytes: 0 });
  });

  it("leave where another needs the room, the one used longest ago first", async () => {
    const { predictors, ids } = open(2);
    const [one, two, three] = models(3);
    for (const asked of [one, two, one, three]) await looked(predictors, asked);
    expect(ids()).toEqual([one.model_id, three.model_id]);
    expect([one, two, three].map((asked) => predictors.isOpen(asked))).toEqual([true, false, true]);
    await predictors.clear();
  });

  it("leave one after another for a large one, which is open however much it takes", async () => {
    const { predictors, ids } = open(2.5);
    const [one, two] = models(2);
    await looked(predictors, one);
    await looked(predictors, two);
    const large = model({ image_size: 1_280 });
    expect(estimatedBytes(large, "cpu")).toBeGreaterThan(3 * estimatedBytes(one, "cpu"));
    await looked(predictors, large);
    expect(ids()).toEqual([large.model_id]);
    await looked(predictors, one);
    expect(ids()).toEqual([one.model_id]);
    await predictors.clear();
  });

  it("are not closed while somebody works with them: an idle one leaves first", async () => {
    const { predictors, ids } = open(2);
    const [one, two, three] = models(3);
    const busy = working(predictors, one);
    await busy.began;
    await looked(predictors, two);
    await looked(predictors, three);
    expect(ids()).toEqual([one.model_id, three.model_id]);
    busy.go();
    expect((await busy.done).length).toBeGreaterThan(0);
    await predictors.clear();
  });

  it("are waited for where all are worked with, never more than fit", async () => {
    const { predictors, ids } = open(1);
    const [one, two] = models(2);
    const busy = working(predictors, one);
    const first = await busy.began;
    const next = looked(predictors, two);
    await aWhile();
    // The first takes no more, and ends what it has.
    expect([ids(), first.ended, predictors.isOpen(two)]).toEqual([[], false, false]);
    const again = looked(predictors, one);
    busy.go();
    expect((await busy.done).length).toBeGreaterThan(0);
    expect(await next).toBe(two.model_id);
    expect(await again).toBe(one.model_id);
    expect(first.ended).toBe(true);
    expect(ids()).toEqual([one.model_id]);
    await predictors.clear();
  });

  it("make room for others where one cannot be opened", async () => {
    const { predictors, ids } = open(1);
    const broken = model({ file: Buffer.from("no weights") });
    await expect(looked(predictors, broken)).rejects.toThrow(/cannot be read/);
    const [one] = models(1);
    expect(await looked(predictors, one)).toBe(one.model_id);
    expect(ids()).toEqual([one.model_id]);
    await predictors.clear();
  });

  it("beside one that is worked with wait for no room, which would be that one's", async () => {
    const { predictors, ids } = open(1);
    const [one, two, three] = models(3);
    const beside = async (own: Predictor, waiting: Promise<string>[]) => {
      const found = await predictors.useBeside(two, signal, async (other) => [
        own.model.model_id,
        other.model.model_id,
        own.ended,
        other.ended,
      ]);
      return { found, waiting };
    };
    // Two more wait for the room meanwhile, one of them with the second model itself.
    const done = await predictors.use(one, signal, (own) =>
      beside(own, [looked(predictors, three), looked(predictors, two)]),
    );
    expect(done.found).toEqual([one.model_id, two.model_id, false, false]);
    expect(await Promise.all(done.waiting)).toEqual([three.model_id, two.model_id]);
    expect(ids()).toEqual([two.model_id]);
    const broken = model({ file: Buffer.from("no weights") });
    const failing = predictors.use(one, signal, () =>
      predictors.useBeside(broken, signal, async () => "never"),
    );
    await expect(failing).rejects.toThrow(/cannot be read/);
    expect(await looked(predictors, three)).toBe(three.model_id);
    await predictors.clear();
  });

  it("beside another are those that are open already", async () => {
    const { predictors } = open(2);
    const [one, two] = models(2);
    await looked(predictors, two);
    const held = await predictors.use(one, signal, () =>
      predictors.useBeside(two, signal, async () => predictors.isOpen(two)),
    );
    expect([held, service.reads.get(two.weights.key)]).toEqual([true, 1]);
    expect(predictors.isOpen(two)).toBe(true);
    await predictors.clear();
  });

  it("take no more than the estimate says, as the system counts it", async () => {
    const { predictors } = open(100);
    const asked = model({ image_size: 640 });
    const image = { data: new Uint8Array(640 * 640 * 3), width: 640, height: 640 };
    // What the runtime itself takes, once.
    await looked(predictors, model());
    const before = process.memoryUsage.rss();
    await predictors.use(asked, signal, async (predictor) => {
      await predictor.warm();
      const look = () => predictor.predict(image, { confidence: 0.9 });
      for (let round = 0; round < 3; round++) await Promise.all([look(), look()]);
    });
    const taken = process.memoryUsage.rss() - before;
    const estimate = estimatedBytes(asked, "cpu");
    expect(taken).toBeLessThan(estimate);
    expect(taken).toBeGreaterThan(estimate / 3);
    await predictors.clear();
  });

  it("are opened once for all who ask at once", async () => {
    const { predictors, told } = open(2);
    const asked = model();
    const all = await Promise.all([looked(predictors, asked), looked(predictors, asked)]);
    expect(all).toEqual([asked.model_id, asked.model_id]);
    expect(told.map(({ modelIds }) => modelIds)).toEqual([[asked.model_id]]);
    await predictors.clear();
  });

  it("are open for each size of image by itself, and told of once", async () => {
    const { predictors, ids, told } = open(4);
    const asked = model();
    const larger = { ...asked, image_size: 64 };
    expect(predictors.isOpen(asked)).toBe(false);
    await looked(predictors, asked);
    expect([asked, larger].map((one) => predictors.isOpen(one))).toEqual([true, false]);
    const size = await predictors.use(larger, signal, async (one) => one.model.image_size);
    expect([size, ids()]).toEqual([64, [asked.model_id]]);
    expect(told.map(({ sizes }) => sizes[asked.model_id])).toEqual([[32], [32, 64]]);
    await predictors.clear();
  });

  it("do not leave for one that nobody waits for", async () => {
    const { predictors } = open(2);
    const [one, two, three] = models(3);
    const file = await noiseImage(40, 30).png().toBuffer();
    const statusOf = async (asked: ModelSource) => {
      const head = { ...headOf(asked), may_evict: false };
      const work = { ...NOTHING_ELSE, predictors, log };
      return (await answerDirectly(encodeAsk(head, [file]), work, signal))?.status;
    };
    const { done, full } = LINE_STATUS;
    expect([await statusOf(one), await statusOf(two)]).toEqual([done, done]);
    expect([await statusOf(three), await statusOf(one)]).toEqual([full, done]);
    await predictors.clear();
  });

  it("tell by the line how many images were looked at together, and of a cold start", async () => {
    const { predictors } = open(2);
    const asked = model();
    const file = await noiseImage(40, 30).png().toBuffer();
    const head = headOf(asked);
    const bytes = encodeAsk(head, [file]);
    const ask = () =>
      answerDirectly(
        bytes,
        { ...NOTHING_ELSE, predictors, log },
        new AbortController().signal,
      ) as Promise<LineReply>;
    const first = await ask();
    expect(first).toMatchObject({ status: LINE_STATUS.done, body: { batch: 1, cold: true } });
    const all = await Promise.all([ask(), ask(), ask()]);
    const answers = all.map(({ body }) => LineAnswer.parse(body));
    expect(answers.map(({ cold }) => cold)).toEqual([false, false, false]);
    for (const { batch } of answers) expect([1, 2]).toContain(batch);
    await predictors.clear();
  });

  it("tell by the line what is on an image as people see it, whatever was looked at before", async () => {
    const { predictors } = open(2);
    const asked = model();
    const head = headOf(asked);
    const work = { ...NOTHING_ELSE, predictors, log };
    // Of other shapes each time: what is around one is what another was.
    const files = await Promise.all([
      noiseImage(60, 20).blur(1).png().toBuffer(),
      noiseImage(20, 60).blur(1).jpeg().toBuffer(),
      noiseImage(90, 40).blur(1).jpeg().withMetadata({ orientation: 6 }).toBuffer(),
    ]);
    const weights = service.objects.get(asked.weights.key) ?? Buffer.alloc(0);
    for (const file of files) {
      const still = await readStill(file);
      const fresh = await openPredictor(asked, weights, { cpuThreads: 1, device: "cpu" });
      const predictions = await fresh.predict(still, { confidence: 0 });
      await fresh.dispose();
      const reply = await answerDirectly(encodeAsk(head, [file]), work, signal);
      const { width, height } = still;
      expect(reply?.body).toMatchObject({ width, height, predictions });
    }
    await predictors.clear();
  });

  it("are there for the others when who asked first gives up", async () => {
    const { predictors } = open(2);
    const asked = model();
    const first = new AbortController();
    const gone = predictors.use(asked, first.signal, async () => "first");
    const stays = looked(predictors, asked);
    first.abort();
    await expect(gone).rejects.toThrow(/abort/);
    expect(await stays).toBe(asked.model_id);
    await predictors.clear();
  });
});
