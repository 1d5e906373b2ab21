// The form of the series page: which valid times, known when, compared with what; what of it cannot
// be read, and ready comparisons.

import type { FC } from "hono/jsx";
import { DAY, iso, parseInstant } from "../../../shared/time.ts";
import type { Vintage } from "../../../shared/wire/markets.ts";
import { OVERLAID_MAX } from "./chart.ts";
import { Select } from "./components.tsx";
import { seriesPath } from "./words.ts";

/** What the form holds, as it was typed or as it stands. */
export interface Choices {
  library: string;
  symbol: string;
  start: string | undefined;
  end: string | undefined;
  asOf: string | undefined;
  compare: string | undefined;
  instruments: readonly string[];
  column: string | undefined;
}

/** A field that cannot be read, by the form's name of it. */
export interface Problem {
  name: string;
  problem: string;
}

const LABELS = { start: "From", end: "To", as_of: "As of", compare: "Compared with" } as const;
type InstantField = keyof typeof LABELS;

/** What is wrong with the instants of a query; nothing where all can be read. */
export function problemsOf(query: Partial<Record<InstantField, string | undefined>>): Problem[] {
  const unreadable = (Object.keys(LABELS) as InstantField[]).filter((name) => {
    const given = query[name];
    return given !== undefined && given !== "" && parseInstant(given) === null;
  });
  return unreadable.map((name) => ({
    name,
    problem:
      `${LABELS[name]}: ${JSON.stringify(query[name])} is no instant; ` +
      "write 2026-01-31, or 2026-01-31T06:00Z",
  }));
}

/** Without what says nothing: seconds and milliseconds of zero. The hour and minute stay. */
const short = (instant: string | undefined) => instant?.replace(/(T\d\d:\d\d):00(\.000)?Z$/, "$1Z");

interface ChoicesFormProps {
  shown: Choices;
  /** Those there are, with their names for people. */
  instruments: readonly (readonly [instrument: string, name: string])[];
  columns: readonly string[];
  vintages: readonly Vintage[];
  problems: readonly Problem[];
}

/** What is shown, to be changed; with problems, as it was typed. */
export const ChoicesForm: FC<ChoicesFormProps> = ({
  shown,
  instruments,
  columns,
  vintages,
  problems,
}) => {
  const field = (name: InstantField, value: string | undefined) => ({
    name,
    label: LABELS[name],
    value: short(value),
    isBad: problems.some((one) => one.name === name),
  });
  return (
    <form class="filters card" method="get" action="/series" aria-label="What is shown">
      <input type="hidden" name="library" value={shown.library} />
      <input type="hidden" name="symbol" value={shown.symbol} />
      {problems.length > 0 && (
        <div class="trouble" role="alert" id="problems">
          {problems.map(({ problem }) => (
            <div>{problem}</div>
          ))}
        </div>
      )}
      <Instruments options={instruments} chosen={shown.instruments} />
      <Choice label="Column" name="column" options={columns} value={shown.column} />
      <TextField {...field("start", shown.start)} />
      <TextField {...field("end", shown.end)} />
      <TextField {...field("as_of", shown.asOf)} list hint="latest" />
      <TextField {...field("compare", shown.compare)} list hint="nothing" />
      <datalist id="known-at">
        {vintages.toReversed().map(({ as_of, revised }) => (
          <option value={as_of}>{revised > 0 ? `${revised} revised` : ""}</option>
        ))}
      </datalist>
      <button type="submit">Show</button>
    </form>
  );
};

/** The instruments of a symbol that has several: one is compared, several share the chart. */
const Instruments: FC<{
  options: ChoicesFormProps["instruments"];
  chosen: readonly string[];
}> = ({ options, chosen }) => {
  if (options.length < 2) {
    const [only] = options;
    return only ? <input type="hidden" name="instrument" value={only[0]} /> : null;
  }
  return (
    <fieldset class="choices">
      <legend>Instruments, at most {OVERLAID_MAX} on one chart</legend>
      {options.map(([instrument, name]) => (
        <label title={instrument}>
          <input
            type="checkbox"
            name="instrument"
            value={instrument}
            checked={chosen.includes(instrument)}
          />
          {name}
        </label>
      ))}
    </fieldset>
  );
};

const Choice: FC<{
  label: string;
  name: string;
  options: readonly string[];
  value: string | undefined;
}> = ({ label, name, options, value }) => {
  if (options.length < 2) {
    return value === undefined ? null : <input type="hidden" name={name} value={value} />;
  }
  return <Select label={label} name={name} options={options} value={value} />;
};

const TextField: FC<{
  label: string;
  name: string;
  value: string | undefined;
  isBad: boolean;
  list?: boolean;
  hint?: string;
}> = ({ label, name, value, isBad, list = false, hint }) => (
  <label>
    {label}
    <input
      type="text"
      name={name}
      value={value ?? ""}
      list={list ? "known-at" : undefined}
      placeholder={hint ?? "2026-01-31T00:00Z"}
      aria-invalid={isBad ? "true" : undefined}
      aria-describedby={isBad ? "problems" : undefined}
      autocomplete="off"
      spellcheck={false}
    />
  </label>
);

/** Ready comparisons of the latest state, each a link. */
export const Presets: FC<{ shown: Choices; now: number }> = ({ shown, now }) => {
  const { library, symbol, instruments, column } = shown;
  // Several instruments share a chart of one knowledge time: there is nothing to compare.
  const [instrument] = instruments;
  if (instruments.length > 1) return null;
  const path = (compare: string | undefined) => {
    const more = Object.entries({ instrument, column, compare });
    const given = more.filter((entry): entry is [string, string] => entry[1] !== undefined);
    return `${seriesPath(library, symbol)}&${new URLSearchParams(given)}`;
  };
  const ago = (days: number) => iso(now - days * DAY);
  return (
    <nav class="presets" aria-label="Compare the latest with">
      <span class="soft">Compare the latest with</span>
      <a href={path(undefined)}>before the last revision</a>
      <a href={path(ago(1))}>yesterday</a>
      <a href={path(ago(7))}>a week ago</a>
      <a href={path(ago(30))}>a month ago</a>
      <a href={path("")}>nothing</a>
    </nav>
  );
};
