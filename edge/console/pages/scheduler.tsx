// Whether the minute cron still comes: the heartbeat that every schedule depends on.

import type { FC } from "hono/jsx";
import { MINUTE } from "../../../shared/time.ts";
import { Moment } from "./components.tsx";
import { distance } from "./words.ts";

/** A heartbeat older than this means that a minute's tick is missing. */
const SILENCE_MS_MAX = 3 * MINUTE;

interface HeartbeatProps {
  /** When the minute cron last came, epoch milliseconds; null: never. */
  last: number | null;
  now: number;
}

/** Whether the last minutes' ticks are missing. Before the first one ever, none is. */
export const isSilent = ({ last, now }: HeartbeatProps): boolean =>
  last !== null && now - last > SILENCE_MS_MAX;

/** Tops every page while the minute's tick is missing. */
export const SilenceBanner: FC<HeartbeatProps> = ({ last, now }) =>
  last !== null && isSilent({ last, now }) ? (
    <p class="notice problem" role="alert">
      <span aria-hidden="true">✕</span> The scheduler is silent: its last tick came{" "}
      {distance(last, now)}, and one is due every minute. No schedule fires until it is back.
    </p>
  ) : null;

/** The heartbeat in one line. */
export const Heartbeat: FC<HeartbeatProps> = ({ last, now }) => (
  <p class="soft heartbeat">
    {last === null ? (
      "The scheduler has not ticked yet: schedules fire from its first minute on."
    ) : (
      <>
        The scheduler ticked last at <Moment at={last} seconds /> ({distance(last, now)}).
      </>
    )}
  </p>
);
