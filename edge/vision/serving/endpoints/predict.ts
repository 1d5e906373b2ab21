// A prediction against a named endpoint: who of its models answers, what is told of what was found,
// and the count of it. Every request that reached its endpoint is counted once, however it ended.

import { confidenceBins } from "../../../../shared/detector/confidence-bins.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { MaskForm } from "../../../../shared/tasks/sam.ts";
import type { Prediction } from "../../../../shared/tasks/tasks.ts";
import type { EndpointSettings } from "../../../../shared/wire/endpoints.ts";
import { asFailure } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import type { ModelRow } from "../../models/registry.ts";
import { isModelFailure } from "../predict/direct.ts";
import { EDGE } from "../predict/edge.ts";
import {
  type ImageAnswer,
  type ImageEndNews,
  letGo,
  predictOn,
  type ReceivedImage,
  receiveImage,
  serverFor,
} from "../predict/image-requests.ts";
import { requireMasks } from "../predict/masks.ts";
import { validationReference } from "./drift.ts";
import type { OpenedEndpoint } from "./keys.ts";
import type { KeyGate, MeterRequest } from "./meter.ts";
import { defaultBatch, endpointBatch, type MeterBatch } from "./meter-batch.ts";
import {
  classCounts,
  DRIFT_CONFIDENCE_MIN,
  driftBins,
  type RequestEnd,
  UNANSWERED,
} from "./rollups.ts";
import { ServedModels, sized, targetName } from "./settings.ts";
import { mirror } from "./shadow.ts";
import { choose } from "./split.ts";
import { answeredSample, FAILED_SAMPLE, leftSample, type TrialSample } from "./trials.ts";

/** A request for a prediction. */
export interface EndpointRequest {
  request: Request;
  /** The same key gets the same model; without one chance decides. */
  stickyKey: string | null;
  mask: MaskForm;
  /** Lets work go on after the answer. */
  defer: (work: Promise<unknown>) => void;
}

/** What an endpoint answers. */
export interface EndpointAnswer
  extends Pick<ImageAnswer, "predictions" | "servedBy" | "precision" | "masksLeftOut"> {
  modelId: string;
}

/**
 * Predicts on the image of a request. Fails with `rate_limited`, with `state_conflict` where none
 * of the endpoint's models is there, with `invalid_request` where masks are asked of a model that
 * makes none, and as predictions on images do.
 */
export async function predictAt(
  parts: Parts,
  { row, gate }: OpenedEndpoint,
  { request, stickyKey, mask, defer }: EndpointRequest,
): Promise<EndpointAnswer> {
  const meter = endpointBatch(parts, row.endpointId);
  /** Names the request, once it was let in. */
  let number: number | null = null;
  let model: ModelRow | null = null;
  let image: ReceivedImage | null = null;
  /** Since when a node was to answer; null where none was. */
  let askedAt: number | null = null;
  let shadowing: Promise<unknown> = Promise.resolve();
  const record = (end: RequestEnd, trial: TrialSample | null) => {
    const counted = { at: parts.clock(), ...countedModel(model), trial, ...end };
    defer(meter.end(parts, counted, number));
  };
  try {
    number = await begin(parts, meter, gate);
    defer(meter.tellBegun(parts));
    const { workspaceId, settings } = row;
    const models = new ServedModels(row.models);
    model = chosenModel(models, { row, stickyKey });
    requireMasks(model, mask);
    const { modelId } = model;
    // An endpoint's own size is not made smaller behind its back.
    const sideMin = settings.image_size ?? 0;
    const wanted = sized(model, settings);
    const server = await serverFor(parts, wanted, { sideMin, mask });
    image = await receiveImage(parts, request, { workspaceId, server });
    // The edge looks at fewer pixels: what it says is no word on the model.
    if (server === "node") askedAt = parts.clock();
    // All that drift looks at, so that an endpoint of few detections does not hide it; but masks
    // are drawn of what is told alone, as they have a bound and cost time.
    const confidenceMin =
      mask === "none" ? Math.min(settings.confidence, DRIFT_CONFIDENCE_MIN) : settings.confidence;
    const asked = { confidenceMin, mask, signal: request.signal, server, sideMin };
    const answer = await predictOn(parts, wanted, image, asked);
    const told = <Found extends Prediction>(found: readonly Found[]) =>
      found.filter((one) => isTold(one, settings));
    const predictions = told(answer.predictions);
    const isEdges = answer.servedBy === EDGE;
    const masked = mask !== "none";
    const live = { told: predictions, ms: answer.ms, cold: answer.cold, masked };
    const seen = confidenceMin <= DRIFT_CONFIDENCE_MIN ? answer.predictions : null;
    const end = answeredEnd({ ...answer, predictions }, { seen });
    // Whoever asked has an answer, and none of the model's.
    const unanswered = answer.failedBefore ? FAILED_SAMPLE : null;
    record(end, isEdges ? unanswered : answeredSample(live));
    const shadow = settings.shadow && models.of(workspaceId, settings.shadow);
    if (
      !isEdges &&
      shadow &&
      shadow.modelId !== modelId &&
      Math.random() < (settings.shadow?.share ?? 0)
    ) {
      const own = { model: sized(shadow, settings), meter };
      shadowing = mirror(parts, own, { image, liveModelId: modelId, live, told, confidenceMin });
      defer(shadowing);
    }
    const { servedBy, precision, masksLeftOut } = answer;
    return { predictions, servedBy, precision, masksLeftOut, modelId };
  } catch (thrown) {
    const hasLeft = request.signal.aborted;
    const ms = askedAt === null ? null : parts.clock() - askedAt;
    const end = failedEnd(thrown, hasLeft);
    record(end, unansweredSample(thrown, { hasLeft, ms }));
    throw thrown;
  } finally {
    void shadowing.finally(() => {
      if (image) letGo(image);
    });
  }
}

/** Lets a request in, and returns its number; one of a key waits for the word of the meter. */
async function begin(
  parts: Parts,
  meter: MeterBatch,
  gate: KeyGate | null,
): Promise<number | null> {
  const { waitMs, number } = await meter.begin(parts, gate);
  if (!gate || waitMs === 0) return number;
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000));
  const { requestsPerMinute } = gate.limit;
  const detail = `the key opens ${requestsPerMinute} predictions a minute; wait ${seconds} s`;
  throw new Failure("rate_limited", detail, {
    data: { retry_after_seconds: seconds, requests_per_minute: requestsPerMinute },
  });
}

/** Who answers. A name that means no model is passed over: its part falls to the others. */
function chosenModel(
  models: ServedModels,
  { row, stickyKey }: { row: OpenedEndpoint["row"]; stickyKey: string | null },
): ModelRow {
  const candidates = row.settings.models.flatMap((target) => {
    const model = models.of(row.workspaceId, target);
    return model ? [{ name: targetName(target), weight: target.weight, model }] : [];
  });
  const winner = choose(candidates, { key: stickyKey, salt: row.endpointId });
  if (winner) return winner.model;
  const names = row.settings.models.map(({ alias }) => alias ?? "its model").join(", ");
  throw new Failure("state_conflict", `no model is called ${names}: promote or activate one first`);
}

/** What the meter is told of the model of a request. */
const countedModel = (model: ModelRow | null): Pick<MeterRequest, "modelId" | "isValidated"> => ({
  modelId: model?.modelId ?? null,
  isValidated: model !== null && validationReference(model) !== null,
});

const isTold = ({ class: name, confidence }: Prediction, settings: EndpointSettings): boolean =>
  confidence >= settings.confidence && (settings.classes?.includes(name) ?? true);

/** An answered request; `seen` is all that drift may look at, null where something was hidden. */
function answeredEnd(
  { predictions, ms, batch, cold, servedBy }: ImageAnswer,
  { seen }: { seen: readonly Prediction[] | null },
): RequestEnd {
  // The edge looks at fewer pixels: its scores are no node's.
  const scores = servedBy === EDGE ? null : seen?.map(({ confidence }) => confidence);
  return {
    code: null,
    ms,
    batch,
    cold,
    classes: classCounts(predictions.map(({ class: name }) => name)),
    confidence: confidenceBins(predictions.map(({ confidence }) => confidence)),
    scores: scores ? driftBins(scores) : null,
  };
}

function failedEnd(thrown: unknown, hasLeft: boolean): RequestEnd {
  const failure = asFailure(thrown);
  const code = failure instanceof Failure ? failure.code : "internal";
  return { ...UNANSWERED, code: hasLeft ? "client_left" : code };
}

/** What an image without an answer says of a model that was asked so long ago, if it was. */
function unansweredSample(
  thrown: unknown,
  { hasLeft, ms }: { hasLeft: boolean; ms: number | null },
): TrialSample | null {
  if (ms === null) return null;
  if (hasLeft) return leftSample(ms);
  return isModelFailure(thrown) ? FAILED_SAMPLE : null;
}

/** Counts a prediction by the default routes; for whoever hears how those end. */
export const countDefault: ImageEndNews = (parts, { model, confidenceMin, outcome, hasLeft }) => {
  const { workspaceId } = model;
  const isWhole = confidenceMin <= DRIFT_CONFIDENCE_MIN;
  const end =
    "answer" in outcome
      ? answeredEnd(outcome.answer, { seen: isWhole ? outcome.answer.predictions : null })
      : failedEnd(outcome.thrown, hasLeft);
  const request = { at: parts.clock(), ...countedModel(model), ...end };
  return defaultBatch(parts, workspaceId).end(parts, request, null);
};
