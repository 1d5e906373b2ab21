// Fields of JSON bodies that no schema knows. Goal: none is passed over; each is refused by its
// path, with the field that was probably meant, at any depth; and a route whose body would pass one
// over cannot be added.

import { z } from "@hono/zod-openapi";
import { describe, expect, it } from "vitest";
import { issuesOf } from "../../edge/http/issues.ts";
import { nullsAsNotGiven } from "../../edge/http/not-given.ts";
import { openObjects, unknownFieldProblem } from "../../edge/http/unknown-fields.ts";

const Body = z.strictObject({
  image_size: z.number().default(640),
  batch_size: z.number().nullable().default(null),
  points: z.array(z.strictObject({ x: z.number(), y: z.number() })).optional(),
  pretrained: z
    .union([z.strictObject({ model_id: z.string() }), z.strictObject({ dataset: z.string() })])
    .nullish(),
});

/** The issues of a body, as a route finds them. */
function issues(body: object) {
  const { error } = nullsAsNotGiven(Body).safeParse(body);
  if (!error) return [];
  return issuesOf(error, { schema: Body }).map(({ field, problem }) => [field, problem]);
}

describe("a field that is not known", () => {
  it.each([
    ["imgsz", 64, "image_size"],
    ["batch", 4, "batch_size"],
    ["image_siz", 64, "image_size"],
    ["imageSize", 64, "image_size"],
    ["point_coords", [], "points"],
  ])("%s is refused with the one that was meant", (name, value, meant) => {
    expect(issues({ [name]: value })).toEqual([[name, `unknown field; did you mean ${meant}?`]]);
  });

  it("like none is refused with all that are known", () => {
    expect(issues({ colour: "red" })).toEqual([
      ["colour", "unknown field; known are image_size, batch_size, points, pretrained"],
    ]);
  });

  it("is named by its path, in lists and in unions, with the names of its own object", () => {
    expect(
      issues({
        points: [
          { x: 1, y: 2 },
          { x: 1, y: 2, z: 3 },
        ],
      }),
    ).toEqual([["points.1.z", "unknown field; did you mean x?"]]);
    expect(issues({ pretrained: { dataset: "coco", datset: "x" } })).toEqual([
      ["pretrained.datset", "unknown field; did you mean dataset?"],
    ]);
  });

  it("is none where it is a null that another option of a union knows", () => {
    expect(issues({ pretrained: { model_id: null, dataset: "coco" } })).toEqual([]);
    expect(issues({ pretrained: { model_id: "m", dataset: null } })).toEqual([]);
    expect(issues({ pretrained: { model_id: "m", dataset: "coco" } })).not.toEqual([]);
    expect(issues({ pretrained: { model_id: "m", colour: null } })).toEqual([
      ["pretrained.colour", "unknown field; known are model_id, dataset"],
    ]);
  });

  it("is one issue each, beside what else is wrong", () => {
    expect(issues({ image_size: "x", imgsz: 1, batch: 2 })).toEqual([
      ["image_size", "Invalid input: expected number, received string"],
      ["imgsz", "unknown field; did you mean image_size?"],
      ["batch", "unknown field; did you mean batch_size?"],
    ]);
  });

  it("of a member that every object has is no name of ours", () => {
    expect(unknownFieldProblem("constructor", ["image_size"])).toBe(
      "unknown field; known are image_size",
    );
    expect(unknownFieldProblem("x", [])).toBe("unknown field; none is known");
  });
});

describe("a schema", () => {
  it("names its objects that pass fields over, at any depth", () => {
    const open = z.object({ a: z.number() });
    const schema = z.strictObject({
      list: z.array(open),
      map: z.record(z.string(), open),
      maybe: open.nullish().default(null),
      either: z.union([open, z.strictObject({})]),
      changed: open.transform(({ a }) => a),
      loose: z.looseObject({ inner: open }),
    });
    expect(openObjects(nullsAsNotGiven(schema))).toEqual([
      "body.list[]",
      "body.map.*",
      "body.maybe",
      "body.either",
      "body.changed",
      "body.loose.inner",
    ]);
    expect(openObjects(Body)).toEqual([]);
  });
});
