// What the listeners of a run's topic are told: lines of its log, epochs with their metrics, how
// far the one under way is, and the end.

import type { TrainDetail } from "../../../../shared/tasks/train-task.ts";
import type { MetricMap, RunEpoch, TrainingRun } from "../../../../shared/wire/training.ts";
import type { NewEvent } from "../../tasks/progress/progress.ts";

/** Characters of an event; a topic takes events of twice as many bytes. */
const EVENT_CHARACTERS_MAX = 60_000;
const LINE_MAX = 4_000;

const isPerClass = (key: string) => key.startsWith("per_class/");

/** A run's figures. Those of single classes come by epoch, and with the end. */
function runData(
  record: TrainingRun,
  { byClass = false }: { byClass?: boolean } = {},
): Record<string, unknown> {
  const { run_id, status, failure, stop_requested, epoch, epochs, loss, mAP } = record;
  const { validation_loss } = record;
  const { eta_seconds, best_epoch, model_id, best_metrics, test_metrics } = record;
  const shown = (metrics: MetricMap | null) =>
    metrics &&
    Object.fromEntries(Object.entries(metrics).filter(([key]) => byClass || !isPerClass(key)));
  return {
    run_id,
    status,
    failure,
    stop_requested,
    epoch,
    epochs,
    loss,
    validation_loss,
    mAP,
    eta_seconds,
    best_epoch,
    model_id,
    best_metrics: shown(best_metrics),
    test_metrics: shown(test_metrics),
  };
}

/** An epoch: its losses and metrics, then those of each class under their own keys. */
export function epochEvents(
  { epoch, losses, validation_losses, metrics, learning_rate, seconds }: RunEpoch,
  more: { epochs: number; eta_seconds?: number | null },
): NewEvent[] {
  const all = Object.entries(metrics);
  const whole = Object.fromEntries(all.filter(([key]) => !isPerClass(key)));
  const { mAP50 = null, "mAP50-95": mAP = null } = whole;
  const data = {
    epoch,
    ...more,
    loss: losses,
    validation_loss: validation_losses,
    mAP: { mAP50, "mAP50-95": mAP },
    metrics: whole,
    learning_rate,
    seconds,
  };
  return [{ type: "epoch", data }, ...perClass(all.filter(([key]) => isPerClass(key)))];
}

/** Metrics of single classes, in as many events as the size of an event asks for. */
function perClass(metrics: readonly (readonly [string, number | null])[]): NewEvent[] {
  const events: NewEvent[] = [];
  let size = EVENT_CHARACTERS_MAX;
  for (const [key, value] of metrics) {
    size += JSON.stringify(key).length + 25;
    if (size > EVENT_CHARACTERS_MAX) {
      events.push({ type: "per_class", data: {} });
      size = 0;
    }
    Object.assign((events.at(-1) as NewEvent).data, { [key]: value });
  }
  return events;
}

/** Lines of a run's log, an event each. */
export const logEvents = (lines: TrainDetail["log"]): NewEvent[] =>
  lines.map(({ n, line }) => ({ type: "log", data: { n, line: line.slice(0, LINE_MAX) } }));

/** Where the epoch under way is, the first one being 1; may be left out for slow readers. */
export const batchEvent = (detail: TrainDetail, epochs: number): NewEvent => ({
  type: "batch",
  data: {
    current: {
      epoch: Math.min(detail.epoch + 1, epochs),
      batch: detail.batch,
      batches: detail.batches,
    },
    batch_loss: detail.losses,
    learning_rate: detail.learning_rate,
    images_per_second: detail.images_per_second,
    memory_bytes: detail.memory_bytes,
    eta_seconds: detail.eta_seconds,
  },
});

/** A new checkpoint, by how far it is. */
export const checkpointEvent = ({ epoch, batch }: { epoch: number; batch: number }): NewEvent => ({
  type: "checkpoint",
  data: { checkpoint: { epoch, batch } },
});

/** The state of a run, with its figures. */
export const stateEvent = (record: TrainingRun): NewEvent => ({
  type: "state",
  data: runData(record),
});

/**
 * The last events of a round's topic. `end` has the final metrics of every class in `best_metrics`;
 * of too many classes for one event they come before it, as those of an epoch do.
 */
export function endEvents(record: TrainingRun): NewEvent[] {
  const whole = runData(record, { byClass: true });
  const fits = JSON.stringify(whole).length <= EVENT_CHARACTERS_MAX;
  const single = Object.entries(record.best_metrics ?? {}).filter(([key]) => isPerClass(key));
  return [
    stateEvent(record),
    ...(record.status === "failed"
      ? [{ type: "error" as const, data: { detail: record.failure } }]
      : []),
    ...(fits ? [] : perClass(single)),
    { type: "end", data: fits ? whole : runData(record) },
  ];
}
