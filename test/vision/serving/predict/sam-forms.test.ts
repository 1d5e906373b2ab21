// The forms in which a segmenter is asked, and what nodes answer. Goal: nothing that a node says is
// believed, and every refusal says what is wrong and what would be right.

import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { SamFinding } from "../../../../shared/tasks/sam.ts";
import { SamPrediction } from "../../../../shared/wire/serving.ts";
import type { LineEnd } from "../../../support/line-end.ts";
import { mp4, png, type SentFile, text } from "../../../support/media.ts";
import {
  codeOf,
  createSamWorld,
  finding,
  HEIGHT,
  image,
  json,
  MIB,
  type Part,
  PERSON,
  RLE,
  requestsOf,
  resultOf,
  type SamWorld,
  WIDTH,
  WORKSPACE_MAX,
} from "../../../support/sam-world.ts";

let w: SamWorld;
beforeAll(async () => {
  w = await createSamWorld();
});
afterEach(async () => {
  expect(await w.stored()).toEqual([]);
});

describe("POST /predict/sam, with a node that answers", () => {
  let end: LineEnd;
  beforeEach(async () => {
    // What each of them does leaves the node as it was.
    end ??= await w.opened();
  });

  /** Answers a request with a result, and gives the response. */
  async function answered(result: object, ...parts: Part[]): Promise<Response> {
    const count = requestsOf(end) + 1;
    const response = w.ask(image(), ...parts);
    end.answer(await end.request(count), result);
    return response;
  }

  it("tells masks as rings or not at all where that is asked", async () => {
    const polygon = [0, 0, 1, 0, 1, 10, 0, 10];
    const asked: [string, SamFinding["mask"]][] = [
      ["polygon", { polygon }],
      ["none", null],
    ];
    for (const [form_, mask] of asked) {
      const response = await answered(resultOf([finding({ mask })]), PERSON, ["mask", form_]);
      expect(SamPrediction.parse(await response.json()).objects[0]?.mask).toEqual(mask);
    }
  });

  it.each<[string, object]>([
    ["another shape", { ...resultOf([]), frames: "none" }],
    ["a prompt that was not asked", resultOf([finding({ prompt: 1 })])],
    ["an object below the threshold", resultOf([finding({ confidence: 0.4 })])],
    ["a box outside of the image", resultOf([finding({ bbox: [0, 0, 65, 10] })])],
    ["a box that is none", resultOf([finding({ bbox: [5, 0, 5, 10] })])],
    ["a number that is none", resultOf([finding({ confidence: Number.NaN })])],
    ["an image of another size", resultOf([], { width: 65 })],
    ["another frame", resultOf([], { frames: [0, 1].map(frame) })],
    ["no frame", resultOf([], { frames: [] })],
    ["runs of another size", maskOf({ size: [HEIGHT, WIDTH + 1], counts: RLE.counts })],
    ["runs that do not cover the image", maskOf({ size: RLE.size, counts: [0, 10] })],
    ["a negative run", maskOf({ size: RLE.size, counts: [-1, 1, WIDTH * HEIGHT] })],
    ["a mask of another form", resultOf([finding({ mask: { polygon: [0, 0, 1, 0, 1, 1] } })])],
    ["too many objects", resultOf(Array.from({ length: 1_001 }, () => finding({ mask: null })))],
  ])("is not answered with %s", async (_, result) => {
    const response = await answered(result, PERSON);
    expect((await codeOf(response)).slice(0, 2)).toEqual([502, "task_failed"]);
  });

  it.each<[string, number[]]>([
    ["outside of the image", [0, 0, 70, 0, 70, 10]],
    ["of no points", [0, 0, 1]],
  ])("is not answered with a ring %s", async (_, polygon) => {
    const response = await answered(resultOf([finding({ mask: { polygon } })]), PERSON, [
      "mask",
      "polygon",
    ]);
    expect((await codeOf(response)).slice(0, 2)).toEqual([502, "task_failed"]);
  });

  it("takes an image that EXIF turns for the same image", async () => {
    const turned = { size: [WIDTH, HEIGHT] as [number, number], counts: [0, WIDTH * HEIGHT] };
    const findings = [finding({ bbox: [0, 0, HEIGHT, WIDTH], mask: { rle: turned } })];
    const result = resultOf(findings, { width: HEIGHT, height: WIDTH });
    const said = SamPrediction.parse(await (await answered(result, PERSON)).json());
    expect([said.width, said.height]).toEqual([HEIGHT, WIDTH]);
  });

  it("refuses an unknown word with the nearest, before any node looks", async () => {
    const before = requestsOf(end);
    const response = await w.ask(image(), ["prompts", "persn"]);
    expect(response.status).toBe(422);
    expect(await response.json()).toMatchObject({
      code: "prompt_unknown",
      detail: expect.stringContaining("nearest are person"),
      nearest: ["person"],
      prompt: "persn",
    });
    const twice = await codeOf(await w.ask(image(), PERSON, ["prompts", "persons"]));
    expect(twice).toEqual([422, "invalid_request", expect.stringContaining("labeled twice")]);
    expect(requestsOf(end)).toBe(before);
  });

  const large = (bytes: number): SentFile => ({ content: new Uint8Array(bytes) });
  it.each<[string, Part[], number, string, RegExp]>([
    ["nothing to look for", [image()], 422, "invalid_request", /prompts: required/],
    ["no file", [PERSON], 422, "invalid_request", /file: required/],
    ["two files", [image(), image(), PERSON], 422, "invalid_request", /only one/],
    ["a text for a file", [["file", "x"], PERSON], 422, "invalid_request", /file: must be a file/],
    ["another field", [image(), ["promts", "a"]], 422, "invalid_request", /did you mean prompts/],
    ["a tool's word", [image(), ["conf", "0.5"]], 422, "invalid_request", /did you mean threshold/],
    [
      "another file",
      [image(), { ...image(), field: "mask_image" }],
      422,
      "invalid_request",
      /unknown/,
    ],
    [
      "a form that is twice",
      [image(), ["class", "a"], ["class", "b"]],
      422,
      "invalid_request",
      /twice/,
    ],
    ["half JSON", [image(), ["points", "[{"]], 422, "invalid_request", /points: must be JSON/],
    [
      "a click that is none",
      [image(), json("points", [{ x: 1 }])],
      422,
      "invalid_request",
      /points.0/,
    ],
    [
      "a box that is none",
      [image(), json("boxes", [[3, 3, 1, 1]])],
      422,
      "invalid_request",
      /boxes.0/,
    ],
    ["another form of mask", [image(), PERSON, ["mask", "png"]], 422, "invalid_request", /mask:/],
    [
      "a threshold of 2",
      [image(), PERSON, ["threshold", "2"]],
      422,
      "invalid_request",
      /threshold/,
    ],
    ["no threshold", [image(), PERSON, ["threshold", ""]], 422, "invalid_request", /threshold/],
    ["an empty word", [image(), ["prompts", " "]], 422, "invalid_request", /prompts.0/],
    [
      "too many words",
      [
        image(),
        json(
          "prompts",
          Array.from({ length: 51 }, (_, at) => `w${at}`),
        ),
      ],
      422,
      "invalid_request",
      /prompts/,
    ],
    [
      "a long field",
      [image(), ["prompts", "x".repeat(70_000)]],
      422,
      "invalid_request",
      /prompts: has/,
    ],
    [
      "a lone box beside boxes",
      [image(), json("bbox", [1, 1, 2, 2]), json("boxes", [1, 1, 2, 2])],
      422,
      "invalid_request",
      /among boxes/,
    ],
    [
      "too many examples",
      [
        image(),
        json("exemplars", Array(10).fill({ bbox: [0, 0, 1, 1] })),
        { ...image(), field: "crop" },
      ],
      422,
      "invalid_request",
      /at most 10/,
    ],
    [
      "a segmenter of none",
      [image(), json("points", { x: 1, y: 1, label: 1 }), ["segmenter", "sam9"]],
      422,
      "prompt_unknown",
      /sam9/,
    ],
    ["a video", [{ content: mp4() }, PERSON], 415, "unsupported_media", /no JPEG/],
    [
      "a crop of text",
      [image(), { field: "crop", content: text() }],
      415,
      "unsupported_media",
      /no JPEG/,
    ],
    [
      "a large crop",
      [image(), { ...image(MIB), field: "crop" }],
      413,
      "file_too_large",
      /crop: over/,
    ],
    [
      "too many pixels",
      [{ content: png(20_000, 20_000) }, PERSON],
      413,
      "file_too_large",
      /pixels/,
    ],
    ["a full workspace", [image(WORKSPACE_MAX + 1), PERSON], 413, "quota_exceeded", /storage/],
    ["an image of no bytes", [large(0), PERSON], 422, "invalid_request", /empty/],
  ])("answers %s with its status", async (_, parts, status, code, detail) => {
    expect(await codeOf(await w.ask(...parts))).toEqual([
      status,
      code,
      expect.stringMatching(detail),
    ]);
  });
});

/** A result whose mask has these runs. */
function maskOf(rle: { size: number[]; counts: number[] }) {
  return resultOf([{ ...finding(), mask: { rle: rle as typeof RLE } }]);
}
function frame(frame_index: number) {
  return { frame_index, time: 0, findings: [] };
}
