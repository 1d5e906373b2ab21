// The meter of an endpoint, as requests reach it: counts them, limits its keys. One object for each
// endpoint, and one for the default routes of each workspace. Counting is for show: a meter that
// cannot be reached is logged and fails no request.

import type { WindowName } from "../../../shared/endpoints.ts";
import type { Parts } from "../base/parts.ts";
import type { RequestEnd, Rollup, ShadowCounts } from "./rollups.ts";
import type { RateLimit } from "./token-bucket.ts";
import type { Trial, TrialSample } from "./trials.ts";

/** A request as the meter takes it. */
export interface MeterRequest extends RequestEnd {
  /** Id of this request alone: a second report of it counts nothing. */
  id: string;
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
export interface MeterShadow extends Pick<MeterRequest, "id" | "at"> {
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
   * A request begins. Returns the milliseconds after which its key opens again; 0 lets it in. One
   * that is refused has not begun.
   */
  begin(id: string, gate: KeyGate | null): Promise<number>;
  record(request: MeterRequest): Promise<void>;
  recordShadow(shadow: MeterShadow): Promise<void>;
  /** What was counted until an instant. */
  read(now: number): Promise<MeterReading>;
  /** When a model last answered, epoch milliseconds; null where it never did. */
  lastAnswer(modelId: string): Promise<number | null>;
  /** What trials came to until now, by name; it is written down, and no eviction loses it. */
  trials(names: readonly string[]): Promise<Record<string, Trial>>;
}

export type MeterParts = Pick<Parts, "meters" | "log">;

const meterCalled = ({ meters }: MeterParts, name: string): MeterRpc =>
  // The namespace does not know the class of its objects.
  meters.get(meters.idFromName(name)) as unknown as MeterRpc;

/** The meter of an endpoint. */
export const endpointMeter = (parts: MeterParts, endpointId: string): MeterRpc =>
  meterCalled(parts, `endpoint:${endpointId}`);

/** The meter of a workspace's default routes. */
export const defaultMeter = (parts: MeterParts, workspaceId: string): MeterRpc =>
  meterCalled(parts, `workspace:${workspaceId}`);

/** Reports to a meter; tries a second time, for an object that was just moved, and never fails. */
export async function tell({ log }: MeterParts, report: () => Promise<unknown>): Promise<void> {
  await report()
    .catch(report)
    .catch((error: unknown) => log.warning("meter", { error }));
}
