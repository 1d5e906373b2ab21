// Images whose nodes are silent, where the edge is there too. Goal: a live node answers before the
// edge does, by whichever way reaches it; a request has one deadline, however many are asked; and
// the silence of a model's node counts against the model, whoever answered in the end.

import sharp from "sharp";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createLog } from "../../../../edge/http/log.ts";
import { endpointMeter } from "../../../../edge/vision/serving/endpoints/meter.ts";
import { trialName } from "../../../../edge/vision/serving/endpoints/trials.ts";
import { createEndpointWorld, type EndpointWorld, FOUND } from "../../../support/endpoint-world.ts";
import { openLineEnd } from "../../../support/line-end.ts";
import { form } from "../../../support/media.ts";
import { CAPABILITIES } from "../../../support/nodes.ts";
import { type Script, scriptedNode } from "../../../support/scripted-node.ts";

let w: EndpointWorld;
let content: Uint8Array<ArrayBuffer>;
const closing: (() => unknown)[] = [];

beforeAll(async () => {
  // Three tests wait for all of it or for half; in the other half the edge has to open a model.
  w = await createEndpointWorld({ services: ["infer", "vision"], imageSecondsMax: 20 });
  const create = { width: 64, height: 48, channels: 3 as const, background: "#a40" };
  content = new Uint8Array(await sharp({ create }).png().toBuffer());
});
beforeEach(() => w.forgetNodes());
afterEach(async () => {
  w.cutNodes();
  for (const close of closing.splice(0)) await close();
});

const image = () => form({ content });
const predict = () => w.admin.send("POST", "/predict/image", image());
const servedBy = (response: Response) => [response.status, response.headers.get("X-Served-By")];
const PREDICTING = { ...CAPABILITIES, kinds: ["predict"] };
const ANSWERING: Script = {
  predict: () => ({
    width: 64,
    height: 48,
    frames: [{ frame_index: 0, time: 0, predictions: FOUND.predictions }],
    seconds: 0.1,
    left_out: 0,
  }),
};
/** A node without a line, which takes tasks from the queue. */
const queueing = () => scriptedNode(w.world, w.admin, ANSWERING, PREDICTING);
/** A node whose line takes requests and never answers them. */
const silent = (loaded: readonly string[]) =>
  w.opened({ loaded, answer: () => new Promise<never>(() => {}) });

describe("an image", () => {
  it("is a live node's by the queue where none has a line, and not the edge's", async () => {
    closing.push((await queueing()).start());
    const response = await predict();
    expect(servedBy(response)).toEqual([200, null]);
    expect(await response.json()).toEqual(FOUND.predictions);
  });

  it("is a live node's by the queue where the lines of all are down", async () => {
    const node = await queueing();
    const headers = { Authorization: `Bearer ${node.api.token}` };
    const post = (path: string, body: unknown) => node.api.send("POST", path, body);
    const end = await openLineEnd(w.world, { nodeId: "", headers, post });
    closing.push(() => end.socket.terminate());
    end.socket.terminate();
    closing.push(node.start());
    expect(servedBy(await predict())).toEqual([200, null]);
  });

  it("is the edge's where no node takes it from the queue", async () => {
    await queueing();
    expect(servedBy(await predict())).toEqual([200, "edge"]);
    const { objects } = await w.world.media.list({ prefix: `ws/${w.workspaceId}/predictions/` });
    expect(objects).toEqual([]);
  });
});

describe("a model whose node keeps silent", () => {
  /** What an endpoint's images came to for its model, for whoever compares models. */
  const trialOf = async (endpointId: string, modelId: string) => {
    const parts = { meters: w.world.objects("METERS"), log: createLog("test") };
    const name = trialName(modelId);
    return (await endpointMeter(parts, endpointId).trials([name]))[name];
  };

  it("has failed, also where the edge answers in the time that is left", async () => {
    await silent([w.one.model_id]);
    const { slug, endpoint_id } = await w.make();
    expect(servedBy(await w.predict(slug, "", w.admin, image()))).toEqual([200, "edge"]);
    await w.counted(slug, 1);
    expect(await trialOf(endpoint_id, w.one.model_id)).toMatchObject({ requests: 1, failures: 1 });
  });

  it("takes all of the time where it is to be opened first, and nothing is the edge's", async () => {
    await silent([]);
    const { slug, endpoint_id } = await w.make();
    const response = await w.predict(slug, "", w.admin, image());
    expect([response.status, ((await response.json()) as { detail: string }).detail]).toEqual([
      503,
      "no GPU node answered in time; try again",
    ]);
    await w.counted(slug, 1);
    expect(await trialOf(endpoint_id, w.one.model_id)).toMatchObject({ requests: 1, failures: 1 });
  });

  it("has failed where another node was full before", async () => {
    // Its one place is taken by the first request.
    const full = await w.opened({ capacity: 1, answer: () => new Promise<never>(() => {}) });
    await silent([w.one.model_id]);
    const { slug, endpoint_id } = await w.make();
    const answers = Array.from({ length: 4 }, () => w.predict(slug, "", w.admin, image()));
    for (const answer of answers) expect(servedBy(await answer)).toEqual([200, "edge"]);
    expect(full.asked).toHaveLength(1);
    await w.counted(slug, 4);
    expect(await trialOf(endpoint_id, w.one.model_id)).toMatchObject({ requests: 4, failures: 4 });
  });
});
