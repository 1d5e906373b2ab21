// A prediction by a target, and what a model of ours says of the same image beside it.

import { Failure } from "../../../../shared/errors.ts";
import { joined } from "../../../../shared/tasks/line.ts";
import { CONFIDENCE_DEFAULT } from "../../../../shared/wire/serving.ts";
import type { ModelName } from "../../../../shared/wire/training.ts";
import { askOutside } from "../../../http/outbound.ts";
import { type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { IMAGE } from "../../media/uploads/media-types.ts";
import type { ModelRow } from "../../models/registry.ts";
import { differencesOf } from "../../serving/endpoints/differences.ts";
import { findEndpoint } from "../../serving/endpoints/endpoints.ts";
import { ServedModels, servingModels, sized } from "../../serving/endpoints/settings.ts";
import {
  type ImageAnswer,
  predictingNodes,
  predictOn,
  serverOf,
} from "../../serving/predict/image-requests.ts";
import { chooseModel } from "../../serving/predict/model-choice.ts";
import { type HeldFile, withHeldFile } from "../../serving/predict/predictions.ts";
import { protocolOf } from "./protocols.ts";
import { TARGET_IMAGE_BYTES_MAX, type TargetPrediction } from "./records.ts";
import { credentialOf, type TargetRow } from "./targets.ts";

const PREDICT_TIMEOUT_MS = 30_000;
const ANSWER_BYTES_MAX = 4 * 1024 * 1024;

/** What a target's answer is held against: one of them, or nothing. */
export interface ComparisonChoice {
  model_id?: string | undefined;
  alias?: ModelName | undefined;
  /** The slug of an endpoint of the target's workspace. */
  endpoint?: string | undefined;
}

/** A model, and from which confidence on what it finds is told. */
interface Rival {
  model: ModelRow;
  confidence: number;
  /** It is not looked at with fewer pixels than so many a side. */
  sideMin: number;
}

async function comparedModel(
  parts: Parts,
  caller: Caller,
  { workspaceId }: TargetRow,
  { model_id, alias, endpoint }: ComparisonChoice,
): Promise<Rival | null> {
  const named = [model_id, alias, endpoint].filter((one) => one !== undefined);
  if (named.length === 0) return null;
  if (named.length > 1) {
    throw new Failure("invalid_request", "model_id: give one of model_id, alias and endpoint");
  }
  if (endpoint === undefined) {
    const choice = { workspace_id: workspaceId, model_id, alias };
    const model = await chooseModel(parts, caller, choice, "annotator");
    if (model.workspaceId !== workspaceId) {
      throw new Failure("not_found", "no such model in the target's workspace");
    }
    return { model, confidence: CONFIDENCE_DEFAULT, sideMin: 0 };
  }
  const within = workspacesOf(caller).filter((id) => id === workspaceId);
  const row = await findEndpoint(parts.database, within, { slug: endpoint });
  const [first] = servingModels(new ServedModels(row.models), row);
  if (!first) throw new Failure("state_conflict", "the endpoint has no model that answers now");
  const { confidence, image_size } = row.settings;
  return { model: sized(first, row.settings), confidence, sideMin: image_size ?? 0 };
}

/**
 * Has a target look at the image of a request, and beside it the model that it is compared to.
 * Fails with `target_failed` where the target does not answer as it should, and as predictions do.
 */
export async function predictByTarget(
  parts: Parts,
  { row, caller, comparedTo }: { row: TargetRow; caller: Caller; comparedTo: ComparisonChoice },
  request: Request,
): Promise<TargetPrediction> {
  const { config, workspaceId } = row;
  if (config.kind === "device") {
    const detail =
      "a device takes no images from here: it predicts by itself, and logs what it saw";
    throw new Failure("state_conflict", detail);
  }
  const compared = await comparedModel(parts, caller, row, comparedTo);
  const nodes = compared ? await predictingNodes(parts, workspaceId) : 0;
  const server = compared && serverOf(parts, compared.model, { nodes, sideMin: compared.sideMin });
  const bytesMax = Math.min(TARGET_IMAGE_BYTES_MAX, parts.limits.uploadBytesMax);
  const rules = { workspaceId, kind: IMAGE, bytesMax };
  return withHeldFile(parts, request, rules, async (image) => {
    const asked = askTarget(parts, row, image);
    if (!compared || !server) return { ...(await asked), compared: null };
    const { model, confidence, sideMin } = compared;
    const wish = { confidenceMin: confidence, signal: request.signal, server, sideMin };
    const looking = predictOn(parts, model, image, wish);
    // Whichever fails first, the other one has the image in its hands until it ends.
    await Promise.allSettled([asked, looking]);
    return { ...(await asked), compared: comparisonOf(model, await looking, await asked) };
  });
}

type TargetAnswer = Omit<TargetPrediction, "compared">;

/** What a model of ours found, and what of that the target found too. */
function comparisonOf(
  { modelId }: ModelRow,
  own: ImageAnswer,
  { predictions }: TargetAnswer,
): TargetPrediction["compared"] {
  const { matched, otherClass, onlyLive, onlyShadow, iou } = differencesOf(
    own.predictions,
    predictions,
  );
  return {
    model_id: modelId,
    predictions: own.predictions,
    latency_ms: own.ms,
    matched,
    other_class: otherClass,
    only_target: onlyShadow,
    only_model: onlyLive,
    mean_iou: matched > 0 ? iou / matched : null,
  };
}

const failed = (why: string, cause?: unknown) =>
  new Failure("target_failed", `the target ${why}`, { cause });

async function askTarget(
  parts: Parts,
  row: TargetRow,
  { pieces }: HeldFile,
): Promise<TargetAnswer> {
  const { config, targetId } = row;
  if (config.kind === "device") throw failed("is a device");
  const protocol = protocolOf(config);
  const file = Uint8Array.from(joined(pieces));
  const contentType = IMAGE.typeOf(file.subarray(0, IMAGE.headBytes));
  const request = protocol.predict({ file, contentType }, await credentialOf(parts, row));
  const began = parts.clock();
  const answer = await askOutside(parts.outbound, {
    ...request,
    timeoutMs: PREDICT_TIMEOUT_MS,
    bytesMax: ANSWER_BYTES_MAX,
  });
  const latency = parts.clock() - began;
  if (typeof answer === "string") throw failed(answer);
  if (answer.status !== 200) throw failed(`answered ${answer.status}`);
  try {
    const predictions = protocol.read(JSON.parse(new TextDecoder().decode(answer.body)));
    return { target_id: targetId, predictions, latency_ms: latency };
  } catch (cause) {
    throw failed("answered what are no predictions of its protocol", cause);
  }
}
