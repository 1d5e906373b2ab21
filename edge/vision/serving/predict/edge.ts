// Predictions where no GPU node is there, or none has room: by a Worker of its own, at a smaller
// square than the model was trained for.

import { z } from "zod";
import {
  EXPORT_PRECISIONS,
  type ExportPrecision,
} from "../../../../shared/detector/export-formats.ts";
import { ERRORS, type ErrorCode, Failure } from "../../../../shared/errors.ts";
import type { Prediction } from "../../../../shared/tasks/tasks.ts";
import {
  EdgeFindings,
  edgeRefusal,
  encodeEdgeRequest,
  PRECISION_HEADER,
} from "../../../../shared/wire/edge-inference.ts";
import { CALIBRATION_IMAGES } from "../../../../shared/wire/exports.ts";
import type { ServeStatus } from "../../../../shared/wire/serving.ts";
import type { Parts } from "../../base/parts.ts";
import { findModel, type ModelRow, modelSource } from "../../models/registry.ts";
import { offeredFile, startExport } from "../../training/exports/exports.ts";
import type { ExportOptions } from "../../training/exports/options.ts";
import type { DirectRequest } from "./direct.ts";

/** A cold start on a slow machine: weights fetched, folded and opened, then one image. */
const EDGE_MS = 30_000;
/** Who answered, as `X-Served-By` says it. */
export const EDGE = "edge";
const NONE = "there is no inference at the edge here";

/** A model at a size that an endpoint asks for. */
export interface SizedModel extends ModelRow {
  /** Pixels a side that it was trained at, where `imageSize` is an endpoint's own. */
  trainedSize?: number;
}

/** Why the edge cannot serve a model at so many pixels a side, for people; null where it can. */
export function edgeProblem(
  { edge }: Pick<Parts, "edge">,
  model: ModelRow,
  sideMin = 0,
): string | null {
  if (!edge) return NONE;
  const side = edgeSide(edge, model);
  if (side >= sideMin) return edgeRefusal(model);
  return `it looks at ${side} pixels a side, and ${sideMin} are asked for`;
}

/**
 * Pixels a side at which the edge looks with a model: no more than the model was trained at, beyond
 * which it finds objects of other sizes than those it learned.
 */
const edgeSide = (
  edge: NonNullable<Parts["edge"]>,
  { imageSize, trainedSize = imageSize }: SizedModel,
): number => Math.min(edge.imageSize, trainedSize);

/** What the edge can do for a workspace whose active model this is. */
export function edgeStatus(
  parts: Pick<Parts, "edge">,
  model: ModelRow | null,
): ServeStatus["edge"] {
  const reason = model ? edgeProblem(parts, model) : parts.edge ? "no model is active" : NONE;
  const { edge } = parts;
  const image_size = edge && model ? edgeSide(edge, model) : (edge?.imageSize ?? null);
  return { able: reason === null, image_size, reason };
}

/** What is opened at the edge in place of a model's weights, once it was made. */
export const edgeOptions = (side: number) =>
  ({
    format: "onnx",
    artifact: "file",
    precision: "int8",
    output: "end_to_end",
    size: [side, side],
    batch: 1,
    calibrationImages: CALIBRATION_IMAGES.default,
  }) as const satisfies ExportOptions;

/**
 * Has the int8 file made that the edge looks with; until it is offered, and for a model of which
 * none can be made, the edge looks in single precision. Never fails, since the model's name has
 * moved by now: what cannot be asked for at the moment the minute asks for.
 */
export async function prepareForEdge(
  parts: Parts,
  { workspaceId, modelId }: Pick<ModelRow, "workspaceId" | "modelId">,
  createdBy: string | null,
): Promise<void> {
  const { edge, log } = parts;
  if (!edge) return;
  try {
    const model = await findModel(parts.database, [workspaceId], modelId);
    if (edgeProblem(parts, model)) return;
    const options = edgeOptions(edgeSide(edge, model));
    await startExport(parts, model, { options, createdBy });
  } catch (error) {
    const isRefused = error instanceof Failure;
    const about = { model_id: modelId, ...(isRefused ? { reason: error.message } : { error }) };
    log[isRefused ? "info" : "warning"]("edge_file_not_made", about);
  }
}

/** What the edge found, and in which precision it looked. */
export interface EdgePredictions {
  predictions: Prediction[];
  precision: ExportPrecision;
}

/** An answer that is none: why, in a code of the table and in words for people. */
const Problem = z.looseObject({ code: z.string(), detail: z.string() });

/**
 * What the edge finds on an image until an instant, at most 30 s from now. Fails with
 * `unsupported_media` and `file_too_large` for the image, with `overloaded` where it has as much as
 * it takes, with `task_failed` for the model, and with `no_node` where it does not answer.
 */
export async function predictAtEdge(
  parts: Pick<Parts, "database" | "edge" | "clock" | "log">,
  model: ModelRow,
  { image, confidenceMin, signal, until }: DirectRequest & { until: number },
): Promise<EdgePredictions> {
  const { edge, clock, log } = parts;
  if (!edge) throw new Failure("no_node", NONE);
  const began = clock();
  const side = edgeSide(edge, model);
  const options = edgeOptions(side);
  const made = await offeredFile(parts, model, options);
  const head = {
    model: modelSource(model),
    file: made && { ...made, precision: options.precision },
    image_size: side,
    confidence: confidenceMin,
  };
  const leftMs = Math.max(1, Math.min(EDGE_MS, until - clock()));
  const init = {
    method: "POST",
    body: encodeEdgeRequest(head, image),
    signal: AbortSignal.any([signal, AbortSignal.timeout(leftMs)]),
  };
  const answered = async () => {
    const response = await edge.service.fetch("https://infer/", init);
    const told = response.headers.get(PRECISION_HEADER);
    const precision = EXPORT_PRECISIONS.find((one) => one === told);
    return { status: response.status, text: await response.text(), precision };
  };
  const { status, text, precision } = await answered().catch((cause: unknown) => {
    throw new Failure("no_node", "no GPU node is there, nor did the edge answer", { cause });
  });
  const answer = status === 200 ? EdgeFindings.safeParse(parseJson(text)).data : undefined;
  if (!answer || !precision) throw refusalOf(status, text);
  const { predictions } = answer;
  const objects = predictions.length;
  log.info("predicted_at_edge", {
    model_id: model.modelId,
    ms: clock() - began,
    objects,
    precision,
  });
  return { predictions, precision };
}

function refusalOf(status: number, text: string): Failure {
  const problem = Problem.safeParse(parseJson(text)).data;
  if (!problem || !isPassedOn(problem.code)) {
    const cause = new Error(`the edge answered ${status}: ${text.slice(0, 500)}`);
    return new Failure("no_node", "no GPU node is there, and inference at the edge failed", {
      cause,
    });
  }
  const { code, detail, ...data } = problem;
  return new Failure(code as ErrorCode, detail, { data });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Codes that mean to whoever sent the image what they mean at the edge. */
const isPassedOn = (code: string) =>
  code in ERRORS && !["internal", "invalid_request", "bad_configuration"].includes(code);
