// Small parts that pages share: instants, ages, states, facts, empty states.

import type { Child, FC } from "hono/jsx";
import { DAY, HOUR, iso, MINUTE } from "../../../shared/time.ts";

/** Beside every state stands its sign: colour is never the only difference. */
const SIGNS: Readonly<Record<string, string>> = {
  materialized: "✓",
  succeeded: "✓",
  passed: "✓",
  failed: "✕",
  late: "!",
  warning: "!",
  missing: "–",
  queued: "…",
  running: "▸",
  canceled: "⊘",
  skipped: "–",
  off: "○",
};

export const signOf = (state: string): string => SIGNS[state] ?? "?";

export const State: FC<{ state: string; children?: Child }> = ({ state, children }) => (
  <span class={`state ${state}`}>
    <span aria-hidden="true">{signOf(state)}</span> {children ?? state}
  </span>
);

const clocks = new Map<string, Intl.DateTimeFormat>();

function clockOf(zone: string): Intl.DateTimeFormat {
  const known =
    clocks.get(zone) ??
    new Intl.DateTimeFormat("en-US", {
      timeZone: zone,
      hourCycle: "h23",
      month: "short",
      day: "numeric",
      hour: "2-digit",
      minute: "2-digit",
      timeZoneName: "short",
    });
  clocks.set(zone, known);
  return known;
}

/** What clocks of a zone show: `13:35 CST`, with the day where it is another than in UTC. */
export function localTime(instant: number, zone: string): string {
  const parts = clockOf(zone).formatToParts(instant);
  const part = (wanted: string) => parts.find(({ type }) => type === wanted)?.value ?? "";
  const time = `${part("hour")}:${part("minute")} ${part("timeZoneName")}`;
  const isSameDay = Number(part("day")) === new Date(instant).getUTCDate();
  return isSameDay ? time : `${part("month")} ${part("day")}, ${time}`;
}

/** An instant in UTC and, where the market's zone is known, as its clocks show it. */
export const Moment: FC<{ at: string | number | null; zone?: string; seconds?: boolean }> = ({
  at,
  zone,
  seconds = false,
}) => {
  if (at === null) return <span class="soft">–</span>;
  const text = iso(typeof at === "number" ? at : Date.parse(at));
  return (
    <time class="moment" datetime={text}>
      <span>
        {text.slice(0, 10)} {text.slice(11, seconds ? 19 : 16)}
        <small> UTC</small>
      </span>
      {zone && zone !== "UTC" && (
        <>
          {" "}
          <small class="local">{localTime(Date.parse(text), zone)}</small>
        </>
      )}
    </time>
  );
};

/** `3 h`, `12 min`, `4 d`: a length of time in its largest unit. */
export function length(milliseconds: number): string {
  const size = Math.abs(milliseconds);
  if (size < 1_000) return `${Math.round(size)} ms`;
  if (size < 90_000) return `${Math.round(size / 1_000)} s`;
  if (size < 90 * MINUTE) return `${Math.round(size / MINUTE)} min`;
  if (size < 36 * HOUR) return `${Math.round(size / HOUR)} h`;
  return `${Math.round(size / DAY)} d`;
}

/** `3 min ago`, `in 2 h`. */
export const distance = (at: string | number, now: number): string => {
  const difference = now - (typeof at === "number" ? at : Date.parse(at));
  if (Math.abs(difference) < 2_000) return "just now";
  return difference >= 0 ? `${length(difference)} ago` : `in ${length(difference)}`;
};

export const number = (value: number): string => value.toLocaleString("en-US");

/** Names and values, side by side. */
export const Facts: FC<{ facts: readonly (readonly [string, Child])[] }> = ({ facts }) => (
  <dl class="facts">
    {facts.map(([name, value]) => (
      <div>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);

/** What to do where there is nothing to see. */
export const Empty: FC<{ title: string; children?: Child }> = ({ title, children }) => (
  <div class="empty">
    <strong>{title}</strong>
    {children && <p>{children}</p>}
  </div>
);

/**
 * Refreshed in place while the page is seen: `every` seconds. `name` tells a page's parts apart.
 */
export const Live: FC<{ name: string; every: number; children?: Child }> = ({
  name,
  every,
  children,
}) => (
  <div id={`live-${name}`} data-live={String(every)}>
    {children}
  </div>
);

export const Progress: FC<{ done: number; total: number; label: string }> = ({
  done,
  total,
  label,
}) => {
  const percent = total > 0 ? Math.floor((done / total) * 100) : 0;
  return (
    <div class="progress">
      <progress value={String(done)} max={String(Math.max(total, 1))} aria-label={label}>
        {percent} %
      </progress>
      <span class="number">{percent} %</span>
    </div>
  );
};

export const jobPath = (job: string): string => `/pipelines/${encodeURIComponent(job)}`;
export const schedulePath = (name: string): string => `/schedules/${encodeURIComponent(name)}`;
export const seriesPath = (library: string, symbol?: string): string =>
  `/series?${new URLSearchParams({ library, ...(symbol ? { symbol } : {}) })}`;

/** A row's cell; on a phone its heading stands beside it. */
export const Cell: FC<{ head: string; class?: string; children?: Child }> = ({
  head,
  children,
  class: name,
}) => (
  <td data-head={head} class={name}>
    <div>{children}</div>
  </td>
);
