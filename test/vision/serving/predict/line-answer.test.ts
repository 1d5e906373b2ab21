// What a node says that it found, read without the schema where that is safe. Goal: nothing is read
// otherwise than the schema of answers reads it, whatever a node says.

import { expect, it } from "vitest";
import { lineAnswerOf } from "../../../../edge/vision/serving/predict/line-answer.ts";
import { LineAnswer } from "../../../../shared/tasks/line.ts";

const BOX = [1, 2, 30.5, 40];
const FOUND = { class: "a", confidence: 0.5, bbox: BOX };
const ANSWER = { predictions: [FOUND], width: 64, height: 48, batch: 2, cold: false };
const RLE = { rle: { size: [48, 64], counts: [3_072] } };

const found = (more: object) => ({ ...ANSWER, predictions: [FOUND, { ...FOUND, ...more }] });

const GOOD: Record<string, unknown> = {
  "an answer": ANSWER,
  "no objects": { ...ANSWER, predictions: [] },
  "more than is known": { ...found({ track: 7 }), engine: "x" },
  "fields in another order": { ...ANSWER, predictions: [{ bbox: BOX, confidence: 1, class: "" }] },
  masks: { ...found({ mask: RLE }), masks_left_out: 0 },
  "no mask": found({ mask: null }),
};
const BAD: Record<string, unknown> = {
  nothing: null,
  "a text": "predictions",
  "a list": [ANSWER],
  "no list": { ...ANSWER, predictions: { 0: FOUND, length: 1 } },
  "no size": { ...ANSWER, width: 0 },
  "no batch": { ...ANSWER, batch: undefined },
  "no word of a cold start": { ...ANSWER, cold: undefined },
  "half a batch": { ...ANSWER, batch: 1.5 },
  "an object that is none": { ...ANSWER, predictions: [FOUND, null] },
  "a list as an object": { ...ANSWER, predictions: [["a", 0.5, BOX]] },
  "a number as a class": found({ class: 1 }),
  "no confidence": found({ confidence: undefined }),
  "too much confidence": found({ confidence: 1.01 }),
  "less than none": found({ confidence: -0.01 }),
  "a text as confidence": found({ confidence: "0.5" }),
  "three corners": found({ bbox: [1, 2, 3] }),
  "five corners": found({ bbox: [1, 2, 30, 40, 50] }),
  "corners in an object": found({ bbox: { 0: 1, 1: 2, 2: 3, 3: 4, length: 4 } }),
  "a corner at no end": found({ bbox: [1, 2, Number.POSITIVE_INFINITY, 40] }),
  "a corner that is no number": found({ bbox: [1, 2, null, 40] }),
  "a box of no width": found({ bbox: [30, 2, 30, 40] }),
  "a box thinner than is stored": found({ bbox: [30, 2, 30 + 1e-9, 40] }),
  "a mask of no form": found({ mask: { rle: 1 } }),
};

it.each(Object.entries(GOOD))("reads %s as the schema does", (_, said) => {
  const read = lineAnswerOf(said);
  expect(read).toEqual(LineAnswer.parse(said));
  // The order of fields is the one that is told.
  expect(JSON.stringify(read)).toBe(JSON.stringify(LineAnswer.parse(said)));
});

it.each(Object.entries(BAD))("refuses %s as the schema does", (_, said) => {
  expect(LineAnswer.safeParse(said).success).toBe(false);
  expect(lineAnswerOf(said)).toBeNull();
});
