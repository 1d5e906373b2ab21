// Models that do well on dark images and badly on bright ones, so that a trial tells nothing of
// what comes: one gives rows that are no boxes, one runs for longer than anybody waits.

import { create } from "@bufbuild/protobuf";
import { GraphWriter, tensorInfo } from "../../gpu-node/onnx/model-file.ts";
import { AttributeProto } from "../../gpu-node/onnx/schema.ts";
import { type DeviceFile, describedFile, SIDE } from "./described-files.ts";

/** AttributeProto.AttributeType of a graph. */
const GRAPH = 5;
const ROW = [1, 1, 6];
/** Mean of all numbers above which an image is bright: the first of `imageFolder` is not. */
const BRIGHT = 0.36;
/** Turns of a loop that take years. */
const FOREVER = 10n ** 15n;

/** A model's fault, and whether it shows on bright images or on all. */
export interface Oddity {
  fault: "hangs" | "fails";
  on: "bright" | "all";
}

/** A model of one row, which is a box of the first class where nothing is wrong. */
export function oddModel({ fault, on }: Oddity): DeviceFile {
  const writer = new GraphWriter();
  const number = (name: string, value: number) =>
    writer.initializer(name, [], new Float32Array([value]));
  const whole = (name: string, value: bigint) =>
    writer.initializer(name, [], new BigInt64Array([value]));
  const row = (name: string, score: number) =>
    writer.initializer(name, ROW, new Float32Array([8, 8, 40, 40, score, 0]));
  const isWrong = writer.node(
    "Greater",
    [
      writer.node("ReduceMean", ["images"], "mean", { keepdims: 0 }),
      number("bright", on === "all" ? -1 : BRIGHT),
    ],
    "is_wrong",
  );
  const worst = fault === "fails" ? row("no_box", 7) : row("wrong_box", 0.5);
  const start = writer.node("Where", [isWrong, worst, row("box", 0.5)], "start");
  const trips = [isWrong, whole("forever", fault === "hangs" ? FOREVER : 1n), whole("once", 1n)];
  writer.node("Loop", [writer.node("Where", trips, "trips"), "", start], "output0");
  writer.nodes.at(-1)?.attribute.push(loopBody());
  const input = tensorInfo("images", [1, 3, SIDE, SIDE]);
  const bytes = Buffer.from(
    writer.encode("odd", [input], [tensorInfo("output0", ROW)], { metadata: { fault, on } }),
  );
  return { bytes, file: describedFile(bytes) };
}

/** Hands the row on as it is. */
function loopBody() {
  const body = new GraphWriter();
  body.node("Identity", ["go"], "go_on");
  body.node("Identity", ["row"], "next_row");
  return create(AttributeProto, {
    name: "body",
    type: GRAPH,
    g: {
      name: "turn",
      node: body.nodes,
      input: [
        tensorInfo("turns", [], "int64"),
        tensorInfo("go", [], "bool"),
        tensorInfo("row", ROW),
      ],
      output: [tensorInfo("go_on", [], "bool"), tensorInfo("next_row", ROW)],
    },
  });
}
