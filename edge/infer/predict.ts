// What a model finds on an image, at the edge. After the model is there nothing outside is waited
// for, so requests of an isolate pass through here one after another.

import type { ExportPrecision } from "../../shared/detector/export-formats.ts";
import { layPixels, placementOf, predictionsOf } from "../../shared/detector/letterbox.ts";
import { Failure } from "../../shared/errors.ts";
import {
  decodeEdgeRequest,
  type EdgeFindings,
  type EdgeHead,
} from "../../shared/wire/edge-inference.ts";
import type { Config } from "./config.ts";
import { decode, judge } from "./decode.ts";
import { orientationOf, turn, turnedSize } from "./orientation.ts";
import { resample } from "./resample.ts";
import { isOutOfMemory, look } from "./runtime.ts";
import { sessionOf } from "./sessions.ts";

/** An answer, and whether the model was opened for it. */
export interface EdgeAnswer {
  answer: EdgeFindings;
  opened: boolean;
  precision: ExportPrecision;
}

/**
 * Answers a request's bytes. Fails with `invalid_request` for what is none, with
 * `unsupported_media` and `file_too_large` for its image, and as `sessionOf` does.
 */
export async function predict(config: Config, bytes: Uint8Array): Promise<EdgeAnswer> {
  const { head, image: file } = readRequest(bytes);
  const header = judge(file);
  const { session, precision, opened } = await sessionOf(config, head);
  const image = await decode(file, header);
  const orientation = orientationOf(file, header.type);
  const size = turnedSize(image, orientation);
  const { image_size: side, confidence } = head;
  const square = { width: side, height: side };
  const placement = placementOf(size, square);
  // The turn of a small image is cheaper, and gives the same.
  const laid = turnedSize(placement.laid, orientation);
  const rgb = turn(resample(image, laid), laid, orientation);
  const rows = await look(session, layPixels(rgb, placement, square), side).catch(unlooked);
  const predictions = predictionsOf(rows, { classes: head.model.classes, confidence, placement });
  return { answer: { predictions, ...size }, opened, precision };
}

function readRequest(bytes: Uint8Array): { head: EdgeHead; image: Uint8Array } {
  try {
    return decodeEdgeRequest(bytes);
  } catch (cause) {
    throw new Failure("invalid_request", "the request is none that the edge reads", { cause });
  }
}

function unlooked(cause: unknown): never {
  const detail = isOutOfMemory(cause)
    ? "the edge has too little memory for the model"
    : "the model failed at the edge";
  throw new Failure("no_node", detail, { cause });
}
