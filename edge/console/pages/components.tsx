// Small parts that pages share: instants, ages, states, facts, empty states.

import { type Child, createContext, type FC, useContext } from "hono/jsx";
import { iso } from "../../../shared/time.ts";
import { describeSymbol } from "../../markets/client/symbols.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import { type Clock, isDated, readClock, zonesOf } from "./words.ts";

/** Beside every state stands its sign: colour is never the only difference. */
const SIGNS: Readonly<Record<string, string>> = {
  materialized: "✓",
  succeeded: "✓",
  passed: "✓",
  partial: "◐",
  failed: "✕",
  late: "!",
  warning: "!",
  missing: "–",
  queued: "…",
  waiting: "◔",
  expected: "◌",
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

/** The clock that the page's reader chose. */
export const ClockContext = createContext<Clock>("utc");

/**
 * An instant by the clock that the reader chose and beside it, where it is known, by that of the
 * market; by UTC beside any other.
 */
export const Moment: FC<{
  at: string | number | null;
  zone?: string | undefined;
  seconds?: boolean;
}> = ({ at, zone, seconds = false }) => {
  const [shown, beside] = zonesOf(useContext(ClockContext), zone);
  if (at === null) return <span class="soft">–</span>;
  const instant = typeof at === "number" ? at : Date.parse(at);
  const main = readClock(instant, shown);
  const other = beside === null ? null : readClock(instant, beside);
  return (
    <time class="moment" datetime={iso(instant)}>
      <span>
        {main.day} {seconds ? main.seconds : main.time}
        <small> {main.zone}</small>
      </span>
      {other && (
        <>
          {" "}
          <small class="local">
            {other.day === main.day ? "" : `${other.day} `}
            {other.time} {other.zone}
          </small>
        </>
      )}
    </time>
  );
};

interface ValidTimeProps {
  at: string | number | null;
  /** Between two of its series' valid times, ISO 8601; null: unknown. */
  step: string | null;
  zone?: string | undefined;
}

/** A valid time: the date where values are labelled by dates, whose 00:00Z no clock shows. */
export const ValidTime: FC<ValidTimeProps> = ({ at, step, zone }) => {
  if (at === null || !isDated(step)) return <Moment at={at} zone={zone} />;
  const day = iso(typeof at === "number" ? at : Date.parse(at)).slice(0, 10);
  return (
    <time class="number whole" datetime={day}>
      {day}
    </time>
  );
};

/** What lies between two valid times of a pipeline's series. */
export const stepOf = (pipeline: Pipeline | undefined): string | null =>
  describeSymbol(pipeline?.libraries[0] ?? "", "").step;

interface DateFieldProps {
  label: string;
  name: string;
  value: string;
  required?: boolean;
}

/**
 * A day, written as pages write it whatever the browser's language; with script, picked from a
 * calendar too.
 */
export const DateField: FC<DateFieldProps> = ({ label, name, value, required = false }) => (
  <div class="date">
    <label>
      {label}
      <input
        type="text"
        name={name}
        value={value}
        required={required}
        pattern="\d{4}-\d{2}-\d{2}"
        title="YYYY-MM-DD"
        placeholder="YYYY-MM-DD"
        maxlength={10}
        size={10}
        autocomplete="off"
        spellcheck={false}
      />
    </label>
  </div>
);

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
