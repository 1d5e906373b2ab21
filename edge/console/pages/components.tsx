// Small parts that pages share: instants, ages, states, facts, empty states.

import type { Child, FC } from "hono/jsx";
import { iso } from "../../../shared/time.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import { localTime } from "./words.ts";

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
  waiting: "◔",
  running: "▸",
  canceled: "⊘",
  skipped: "–",
  off: "○",
};

/** The sign of a state, `?` for one that is unknown. */
export const signOf = (state: string): string => SIGNS[state] ?? "?";

/** A state with its sign and colour. */
export const State: FC<{ state: string; children?: Child }> = ({ state, children }) => (
  <span class={`state ${state}`}>
    <span aria-hidden="true">{signOf(state)}</span> {children ?? state}
  </span>
);

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

/** A bar with its share of `total` in percent, or with what is `said` of it instead. */
export const Progress: FC<{
  done: number;
  total: number;
  label: string;
  said?: string | undefined;
}> = ({ done, total, label, said }) => {
  const percent = total > 0 ? Math.floor((done / total) * 100) : 0;
  return (
    <div class="progress">
      <progress value={String(done)} max={String(Math.max(total, 1))} aria-label={label}>
        {said ?? `${percent} %`}
      </progress>
      <span class="number">{said ?? `${percent} %`}</span>
    </div>
  );
};

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

/** A labelled choice of a form. An option is its value, or the value and what is shown for it. */
export const Select: FC<{
  label: string;
  name: string;
  options: readonly (string | readonly [value: string, text: string])[];
  value: string | undefined;
}> = ({ label, name, options, value }) => (
  <label>
    {label}
    <select name={name}>
      {options.map((option) => {
        const [own, text] = typeof option === "string" ? [option, option] : option;
        return (
          <option value={own} selected={own === value}>
            {text}
          </option>
        );
      })}
    </select>
  </label>
);

/** The option of a filter that filters nothing. */
export const ALL = ["", "all"] as const;
/** Every pipeline as an option. */
export const JOBS = PIPELINES.map(({ job, title }) => [job, title] as const);
