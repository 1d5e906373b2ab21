// The weights of a detector as it is deployed, for a task: what is wrong with them fails the task.

import {
  type DeployedModel,
  foldWeights,
  WeightsError,
} from "../../shared/detector/deployed-weights.ts";
import { SafetensorsError, type TensorFile } from "../../shared/detector/safetensors.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { unreadable } from "./weights-file.ts";

/**
 * What is deployed of a registry model. Fails with `bad_weights` where the file's tensors are not
 * those of the graph, or hold what is no number.
 */
export function deployedModel(
  model: Pick<ModelSource, "variant" | "classes" | "task">,
  file: TensorFile,
): DeployedModel {
  try {
    return foldWeights(model, file);
  } catch (thrown) {
    if (thrown instanceof SafetensorsError) throw unreadable(thrown);
    if (!(thrown instanceof WeightsError)) throw thrown;
    throw new TaskFailure("bad_weights", thrown.message, { cause: thrown });
  }
}
