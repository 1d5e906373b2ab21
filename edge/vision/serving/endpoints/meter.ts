// The meter of an endpoint, as isolates reach it: counts requests, limits keys. One object for each
// endpoint, and one for the default routes of each workspace. Counting is for show: a meter that
// cannot be reached is logged and fails no request.

import type { WindowName } from "../../../../shared/wire/endpoints.ts";
import type { Parts } from "../../base/parts.ts";
import type { FaultFigures } from "./faults.ts";
import type { RequestEnd, Rollup, ShadowCounts } from "./rollups.ts";
import type { RateLimit } from "./token-bucket.ts";
import type { Trial, TrialSample } from "./trials.ts";

/** A request as the meter takes it. */
export interface MeterRequest extends RequestEnd {
  /** When it ended, epoch milliseconds. */
  at: number;
  /** Null where it got no model. */
  modelId: string | null;
  /** Drift holds the model against its validation: its first detections are no reference. */
  isValidated?: boolean;
  /** What experiments count of it; null where its model had no part in how it ended. */
  trial?: TrialSample | null;
}

/** What a shadow's look at an image came to, as the meter takes it. */
export interface MeterShadow extends Pick<MeterRequest, "at"> {
  /** The model that is the shadow. */
  modelId: string;
  counts: ShadowCounts;
  /** The model that answered, and what experiments count; null where the shadow did not look. */
  trial?: { liveModelId: string; sample: TrialSample } | null;
}

/** What a key has to pass. */
export interface KeyGate {
  keyId: string;
  limit: RateLimit;
}

/** So many requests that a key lets in. */
export interface KeyShare {
  gate: KeyGate;
  count: number;
}

/** What an isolate tells a meter at once. */
export interface MeterReport {
  isolate: string;
  /** Counts the reports of the isolate: a second one of the same number counts nothing. */
  number: number;
  /** Requests of the isolate that are under way. */
  running: number;
  ended: MeterRequest[];
  shadows: MeterShadow[];
  /** Requests that were taken of keys, and were not made. */
  givenBack: KeyShare[];
}

/** What an object has counted in a window, by model; those that got none are under "". */
export interface MeterWindow {
  /** Its beginning, epoch milliseconds. */
  since: number;
  models: Record<string, Rollup>;
}

/** All that a meter knows. */
export interface MeterReading {
  inFlight: number;
  /** Requests that an eviction would lose now. */
  unwritten: number;
  windows: Record<WindowName, MeterWindow>;
  /** Bins of the confidences of each model's first detections. */
  references: Record<string, number[]>;
}

/** What an EndpointMeter object answers to. */
export interface MeterRpc {
  /**
   * Takes as many requests of a key as it has, at most so many. Where it has none, `waitMs` is how
   * long until it has one again.
   */
  take(gate: KeyGate, wanted: number): Promise<{ count: number; waitMs: number }>;
  /** Takes a report, and tells what is to be written down of the endpoint's faults, if anything. */
  report(report: MeterReport): Promise<FaultFigures | null>;
  /** What was counted until an instant. */
  read(now: number): Promise<MeterReading>;
  /** When a model last answered, epoch milliseconds; null where it never did. */
  lastAnswer(modelId: string): Promise<number | null>;
  /** What trials came to until now, by name; it is written down, and no eviction loses it. */
  trials(names: readonly string[]): Promise<Record<string, Trial>>;
}

export type MeterParts = Pick<Parts, "meters" | "log">;

/** The meter of a name. */
export const meterCalled = ({ meters }: MeterParts, name: string): MeterRpc =>
  // The namespace does not know the class of its objects.
  meters.get(meters.idFromName(name)) as unknown as MeterRpc;

/** The meter of an endpoint. */
export const endpointMeter = (parts: MeterParts, endpointId: string): MeterRpc =>
  meterCalled(parts, `endpoint:${endpointId}`);

/** The meter of a workspace's default routes. */
export const defaultMeter = (parts: MeterParts, workspaceId: string): MeterRpc =>
  meterCalled(parts, `workspace:${workspaceId}`);

/**
 * Reports to a meter; tries a second time, for an object that was just moved, and never fails.
 * Answers what the meter tells, null where it could not be reached.
 */
export async function tell<Told>(
  { log }: MeterParts,
  report: () => Promise<Told>,
): Promise<Told | null> {
  return report()
    .catch(report)
    .catch((error: unknown) => {
      log.warning("meter", { error });
      return null;
    });
}
