// How many processes train a run, and what each of them begins with.

import type { RunStart, StartParts } from "./start.ts";
import { Team } from "./team.ts";

/**
 * Processes that a run gets of those that it asked for: on a CPU each needs a core of its own. On
 * GPUs it is one, since the engine's processes meet by Gloo alone.
 */
export function processesOf({ payload, hardware, report }: StartParts): number {
  const asked = payload.settings.devices;
  const able = hardware.device === "cuda" ? 1 : hardware.threads;
  if (asked > able) {
    const why =
      hardware.device === "cuda" ? "GPUs do not train as one yet" : "it has no more cores";
    report.say(`${asked} devices were asked for, and this node trains on ${able}: ${why}.`);
  }
  return Math.max(1, Math.min(asked, able));
}

/** The run as one of so many processes sees it. */
export function shareOf(parts: StartParts, processes: number): StartParts {
  const threads = Math.max(1, Math.floor(parts.hardware.threads / processes));
  return { ...parts, hardware: { ...parts.hardware, threads } };
}

/** The processes that train as one with a run's engine. */
export async function formTeam(
  { graph, data, hardware, payload, report }: StartParts,
  { engine, options, state }: RunStart,
  size: number,
): Promise<Team> {
  const { device, threads } = hardware;
  const { seed, synchronized_norm: synchronizedNorm } = payload.settings;
  const { path, images } = data.splits.train;
  const { precision } = state.resolved;
  const team = await Team.form(engine, {
    engine: { graph, device, precision, threads, seed, training: options },
    dataset: { path, images },
    size,
    synchronizedNorm,
  });
  report.say(
    `${size} processes of ${threads} ${threads === 1 ? "thread" : "threads"} each train as one; ` +
      `batch norm by ${synchronizedNorm ? "the whole batch" : "each one's part of the batch"}.`,
  );
  return team;
}
