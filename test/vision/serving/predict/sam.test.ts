// A segmenter asked about an uploaded image over HTTP, with nodes whose end of the line the test
// holds. Goal: what is asked reaches a node that knows how to answer it, whatever becomes of nodes,
// and each object is told with its prompt.

import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { HELD_BYTES_MAX } from "../../../../edge/vision/serving/predict/held-bytes.ts";
import { LINE_STATUS, lineKindOf } from "../../../../shared/tasks/line.ts";
import { SamPrediction } from "../../../../shared/wire/serving.ts";
import type { LineEnd } from "../../../support/line-end.ts";
import { form, png } from "../../../support/media.ts";
import { registerModel } from "../../../support/registered-model.ts";
import {
  codeOf,
  createSamWorld,
  finding,
  HEIGHT,
  headOf,
  image,
  json,
  type Part,
  PERSON,
  RLE,
  requestsOf,
  resultOf,
  type SamWorld,
  SEGMENTING,
  WIDTH,
} from "../../../support/sam-world.ts";

const ABSENT = "00000000-0000-4000-8000-000000000000";

let w: SamWorld;
beforeAll(async () => {
  w = await createSamWorld();
});
afterEach(async () => {
  expect(await w.stored()).toEqual([]);
});

describe("POST /predict/sam", () => {
  beforeEach(() => w.alone());

  it("holds no more crops than fit into memory, together with those of other requests", async () => {
    const end = await w.opened({
      hear: (heard, { kind, payload }) => {
        const isAsk = lineKindOf(kind, "ask") !== null;
        if (isAsk) heard.send({ kind: "read", value: payload.length });
      },
    });
    const crops = Array.from({ length: 8 }, () => ({ ...image(700_000), field: "crop" }));
    // Twice, as text.
    const fitting = Math.floor(HELD_BYTES_MAX / (8 * 2 * 700_000 * (4 / 3)));
    const held: Promise<Response>[] = [];
    for (let count = 1; count <= fitting; count++) {
      held.push(w.ask(image(), ...crops));
      await end.request(count);
    }
    const [status, code, detail] = await codeOf(await w.ask(image(), ...crops));
    expect([status, code]).toEqual([429, "overloaded"]);
    expect(detail).toContain("files of other requests fill the memory");
    for (const [index, answer] of held.entries()) {
      end.answer(await end.request(index + 1), resultOf([]));
      expect((await answer).status).toBe(200);
    }
    // All of it was given back.
    const later = w.ask(image(), ...crops);
    end.answer(await end.request(fitting + 1), resultOf([]));
    expect((await later).status).toBe(200);
  });

  it("asks a node of the line in its words, and tells each object with its prompt", async () => {
    const end = await w.opened({ name: "Käfer 1" });
    const points = [
      { x: 5, y: 6, label: 1 },
      { x: 7, y: 8, label: 0 },
    ];
    const crop = png(9, 9);
    const response = w.ask(
      ["prompts", "person"],
      json("points", points),
      image(),
      ["prompts", " car "],
      ["prompts", "person"],
      json("bbox", [1, 2, 30, 40]),
      json("boxes", [
        [0, 0, 5, 5],
        [2, 2, 9, 9],
      ]),
      json("exemplars", [{ bbox: [3, 3, 8, 8] }]),
      { field: "crop", content: crop },
      ["class", "thing"],
      ["threshold", "0.3"],
    );
    const id = await end.request(1);
    const { head, file } = headOf(end, id);
    expect(end.frames.find(({ kind }) => kind === "sam_ask")?.value).toBeGreaterThan(5_000);
    expect(head).toEqual({
      kind: "sam",
      prompts: [
        { kind: "text", class_name: "person", text: "person" },
        { kind: "text", class_name: "car", text: "car" },
        {
          kind: "exemplar",
          class_name: "thing",
          exemplars: [
            { frame_index: 0, bbox: [3, 3, 8, 8] },
            { crop: Buffer.from(crop).toString("base64") },
          ],
        },
        { kind: "points", class_name: "thing", points, bbox: [1, 2, 30, 40] },
        { kind: "box", class_name: "thing", bbox: [0, 0, 5, 5] },
        { kind: "box", class_name: "thing", bbox: [2, 2, 9, 9] },
      ],
      threshold: 0.3,
      mask: "rle",
      segmenter: null,
    });
    expect([...file]).toEqual([...png(WIDTH, HEIGHT)]);
    const findings = [0, 1, 2, 3, 4, 5].map((prompt) => finding({ prompt }));
    const left_out = { frames: 0, objects: 7, masks: 2 };
    // What the contract does not name is not passed on.
    end.answer(id, { ...resultOf(findings, { warnings: ["so"], left_out }), debug: "x" });
    const answer = await response;
    expect(answer.headers.get("X-Served-By")).toBe("node/K%C3%A4fer%201");
    const said = SamPrediction.parse(await answer.json());
    expect(said.objects.map((one) => [one.class, one.prompt.kind, one.prompt.index])).toEqual([
      ["person", "text", 0],
      ["car", "text", 1],
      ["thing", "exemplar", 0],
      ["thing", "points", 0],
      ["thing", "box", 0],
      ["thing", "box", 1],
    ]);
    const { objects: _, ...rest } = said;
    expect(rest).toEqual({
      width: WIDTH,
      height: HEIGHT,
      segmenter: "scripted",
      warnings: ["so"],
      left_out: { objects: 7, masks: 2 },
      seconds: 0.2,
    });
    expect(said.objects[0]).toMatchObject({ bbox: [0, 0, 1, 10], mask: { rle: RLE } });
  });

  it("takes lists as one text or as a field an entry, and a box alone as its box", async () => {
    const end = await w.opened();
    const wanted = async (...parts: Part[]) => {
      const count = requestsOf(end) + 1;
      const response = w.ask(image(), ...parts);
      const id = await end.request(count);
      end.answer(id, resultOf([]));
      expect((await response).status).toBe(200);
      return headOf(end, id).head.prompts;
    };
    const both = await wanted(json("prompts", ["person", "car"]));
    expect(both.map((one) => one.kind === "text" && one.text)).toEqual(["person", "car"]);
    const [one, other] = [json("boxes", [1, 1, 2, 2]), json("boxes", [3, 3, 4, 4])];
    const boxes = await wanted(one, other);
    expect(boxes).toEqual(
      await wanted(
        json("boxes", [
          [1, 1, 2, 2],
          [3, 3, 4, 4],
        ]),
      ),
    );
    expect(boxes).toHaveLength(2);
    expect(await wanted(json("bbox", [1, 1, 2, 2]))).toEqual(boxes.slice(0, 1));
    const [first] = await wanted(json("points", { x: 1, y: 2, label: 1 }));
    expect(first).toMatchObject({ kind: "points", points: [{ x: 1, y: 2, label: 1 }], bbox: null });
  });

  it("goes to a node that has the segmenter open, or to one that has it at all", async () => {
    const cold = await w.opened({ loaded: [] });
    const warm = await w.opened();
    for (let count = 1; count <= 3; count++) {
      const response = w.ask(image(), PERSON);
      warm.answer(await warm.request(count), resultOf([]));
      expect((await response).status).toBe(200);
    }
    expect(requestsOf(cold)).toBe(0);
    const spare = w.ask(image(), ["prompts", "anything at all"], ["segmenter", "spare"]);
    const [one] = await Promise.race([
      cold.request(1).then((id) => [[cold, id] as const]),
      warm.request(4).then((id) => [[warm, id] as const]),
    ]);
    one?.[0].answer(one[1], resultOf([], { segmenter: "spare" }));
    expect((await spare).status).toBe(200);
  });

  it("is refused where the segmenters are full, while predictions still have their places", async () => {
    const model = await registerModel(w.world, w.workspaceId, { classes: ["disc"] });
    const end = await w.opened({ capacity: 1 });
    end.send({ kind: "grant", value: 1 });
    const first = w.ask(image(), PERSON);
    const id = await end.request(1);
    const second = await w.ask(image(), PERSON);
    expect(second.headers.get("Retry-After")).toBe("1");
    expect((await codeOf(second)).slice(0, 2)).toEqual([429, "overloaded"]);
    const path = `/predict/image?model_id=${model.model_id}`;
    const predicted = w.annotator.send("POST", path, form(image()));
    const nothing = { predictions: [], width: WIDTH, height: HEIGHT, batch: 1, cold: false };
    end.answer(await end.request(2), nothing);
    expect((await predicted).status).toBe(200);
    end.answer(id, resultOf([]));
    expect((await first).status).toBe(200);
  });

  it("of a node that died mid-way goes to another, once, and ends in 503 without one", async () => {
    const [one, other] = [await w.opened(), await w.opened()];
    const response = w.ask(image(), PERSON);
    const asked = ({ frames }: LineEnd) =>
      frames.find(({ kind, last }) => kind === "sam_ask" && last);
    await expect.poll(() => asked(one) ?? asked(other)).toBeDefined();
    const [first, second] = asked(one) ? [one, other] : [other, one];
    first.socket.terminate();
    second.answer(await second.request(1), resultOf([finding()]));
    expect((await response).status).toBe(200);
    const unanswered = w.ask(image(), PERSON);
    await second.request(2);
    second.socket.terminate();
    const lost = await unanswered;
    expect(lost.headers.get("Retry-After")).not.toBeNull();
    expect((await codeOf(lost)).slice(0, 2)).toEqual([503, "no_node"]);
  });

  it("never reaches a node that does not say that it takes the kind", async () => {
    const other = await w.opened({
      capabilities: { ...SEGMENTING, kinds: ["predict", "preview"] },
    });
    expect((await codeOf(await w.ask(image(), PERSON))).slice(0, 2)).toEqual([503, "no_node"]);
    expect(other.frames.filter(({ kind }) => kind !== "hello")).toEqual([]);
  });

  it.each<[string, string, number, string]>([
    ["a file that cannot be read", "unsupported_media", 415, "unsupported_media"],
    ["a word that only it does not know", "prompt_unknown", 422, "prompt_unknown"],
    ["a click beside the image", "invalid_request", 422, "invalid_request"],
    ["a fault of its own", "bundle_broken", 502, "task_failed"],
  ])("is refused in the node's words: %s", async (_, code, status, expected) => {
    const end = await w.opened();
    const response = w.ask(image(), PERSON);
    end.answer(await end.request(1), { code, detail: "it is so" }, LINE_STATUS.refused);
    expect(await codeOf(await response)).toEqual([status, expected, "it is so"]);
  });

  it("answers no form with 400, and no node with 503", async () => {
    const send = (body: unknown) => w.annotator.send("POST", "/predict/sam", body);
    expect((await codeOf(await send(form(image(), PERSON)))).slice(0, 2)).toEqual([503, "no_node"]);
    await w.opened();
    expect((await codeOf(await send(new Uint8Array([1])))).slice(0, 2)).toEqual([400, "bad_body"]);
  });

  it("is for annotators, in a workspace of their own", async () => {
    await w.opened();
    for (const path of ["/predict/sam", "/predict/sam/video"]) {
      const body = () => form(image(), PERSON);
      expect(await w.viewer.refused("POST", path, body())).toEqual([403, "forbidden"]);
      for (const id of [w.foreign, ABSENT]) {
        const query = `${path}?workspace_id=${id}`;
        expect(await w.annotator.refused("POST", query, body())).toEqual([404, "not_found"]);
      }
    }
  });
});
