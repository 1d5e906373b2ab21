// A chart as browsers draw it: its data, its caption, and what stands there without script.

import { type Child, type FC, useContext } from "hono/jsx";
import { ClockContext } from "./components.tsx";
import { isDated, zonesOf } from "./words.ts";

/** A line of a chart. */
export interface Line {
  name: string;
  /** A value for each of the chart's times; null: none. */
  values: (number | null)[];
  /** Which of the eight colours it has; lines of one thing share theirs. */
  hue: number;
  dashed: boolean;
}

/** What a chart draws. */
export interface PlotData {
  /** Valid times in seconds since the epoch, which is what the package counts in; rising. */
  times: number[];
  lines: Line[];
  /** Indexes in `times` of points of the first line that are marked as revised. */
  revised: number[];
}

interface PlotProps {
  data: PlotData;
  unit: string | null;
  /** The market's time zone. */
  zone: string;
  /** Between two valid times, ISO 8601; null: unknown. */
  step: string | null;
  /** What it is of, for those who do not see it. */
  title: string;
  /** Its caption. */
  children?: Child;
}

/** A chart with its caption. */
export const Plot: FC<PlotProps> = ({ data, unit, zone, step, title, children }) => {
  // Dates have no hour that a clock could show.
  const clocks = isDated(step) ? ["UTC"] : zonesOf(useContext(ClockContext), zone);
  const given = JSON.stringify({ ...data, unit, clocks, dated: isDated(step) });
  return (
    <figure class="chart" id="chart" aria-label={title}>
      <figcaption>{children}</figcaption>
      <div class="plot" data-chart={given} role="img" aria-label={`Chart of ${title}`} />
      <noscript>
        <p class="soft">The chart needs JavaScript; the values are in the table below.</p>
      </noscript>
    </figure>
  );
};
