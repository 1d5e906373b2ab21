// A strict reader of the text that Prometheus scrapes, version 0.0.4: every line must be of the
// format, every sample of an announced metric, and nothing may come twice. Of a histogram, buckets
// rise, the last is infinite and counts all, and sum and count are there.

export interface ScrapedMetric {
  type: string;
  help: string;
  /**
   * Values by their labels, written `name="value"` and joined by commas. Those of a histogram lie
   * under its names with `_bucket`, `_sum` and `_count`.
   */
  samples: Map<string, number>;
}

const NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const LABEL = '[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\\\\n]|\\\\["\\\\n])*"';
const SAMPLE = new RegExp(
  `^(${NAME})(?:\\{(${LABEL}(?:,${LABEL})*)\\})? ([+-]Inf|NaN|-?\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?)$`,
);
const ANNOUNCEMENT = new RegExp(`^# (HELP|TYPE) (${NAME}) (.*)$`);
const PARTS = ["_bucket", "_sum", "_count"];

const numberOf = (value: string) => Number(value.replace("Inf", "Infinity"));

/** The metrics of a text, by name; fails at the first line that does not fit. */
export function readExposition(text: string): Map<string, ScrapedMetric> {
  const metrics = new Map<string, ScrapedMetric>();
  if (!text.endsWith("\n")) throw new Error("the last line does not end");
  let last = "";
  for (const line of text.slice(0, -1).split("\n")) {
    const announced = ANNOUNCEMENT.exec(line);
    if (announced) {
      const [, kind, name = "", rest = ""] = announced;
      if (kind === "HELP" && metrics.has(name)) throw new Error(`twice: ${line}`);
      const known = metrics.get(name) ?? { type: "", help: "", samples: new Map() };
      if (known.samples.size > 0) throw new Error(`after its samples: ${line}`);
      metrics.set(name, { ...known, [kind === "HELP" ? "help" : "type"]: rest });
      if (kind === "TYPE" && rest === "histogram") {
        for (const part of PARTS) {
          metrics.set(name + part, { type: "part", help: "of a histogram", samples: new Map() });
        }
      }
      last = name;
      continue;
    }
    const [, name = "", labels = "", value = ""] = SAMPLE.exec(line) ?? [];
    const metric = metrics.get(name);
    const isPart = metric?.type === "part" && PARTS.some((part) => name === last + part);
    if (!metric || !(isPart || (name === last && /^(gauge|counter)$/.test(metric.type)))) {
      throw new Error(`not of the format: ${line}`);
    }
    if (metric.samples.has(labels)) throw new Error(`twice: ${line}`);
    metric.samples.set(labels, numberOf(value));
  }
  for (const [name, { type }] of metrics) if (type === "histogram") checkHistogram(metrics, name);
  return metrics;
}

const BOUND = /(?:^|,)le="([^"]+)"$/;

function checkHistogram(metrics: ReadonlyMap<string, ScrapedMetric>, name: string): void {
  const [buckets, sums, counts] = PARTS.map(
    (part) => metrics.get(name + part)?.samples ?? new Map<string, number>(),
  );
  const series = Map.groupBy(buckets ?? [], ([labels]) => labels.replace(BOUND, ""));
  for (const [labels, rows] of series) {
    const bounds = rows.map(([row]) => numberOf(BOUND.exec(row)?.[1] ?? "NaN"));
    const values = rows.map(([, value]) => value);
    const rises = bounds.every((bound, index) => index === 0 || bound > (bounds[index - 1] ?? 0));
    const grows = values.every((value, index) => value >= (values[index - 1] ?? 0));
    const isWhole = bounds.at(-1) === Infinity && values.at(-1) === counts?.get(labels);
    if (!rises || !grows || !isWhole || !sums?.has(labels)) {
      throw new Error(`no histogram: ${name}{${labels}}`);
    }
  }
  if (sums?.size !== series.size || counts?.size !== series.size) {
    throw new Error(`sums or counts of nothing: ${name}`);
  }
}

/** What breaks Prometheus' conventions: units, suffixes, words about each metric. */
export function conventionProblems(metrics: ReadonlyMap<string, ScrapedMetric>): string[] {
  return [...metrics].flatMap(([name, { type, help }]) => {
    if (type === "part") return [];
    const problems: string[] = [];
    if (!/^vantage_[a-z][a-z0-9_]*$/.test(name)) problems.push("is not a name of ours");
    if (!help.endsWith(".")) problems.push("is not told of in a sentence");
    if ((type === "counter") !== name.endsWith("_total")) problems.push("_total is of counters");
    if (/_(ms|milliseconds|minutes|kb|mb|mib|percent)(_|$)/.test(name)) {
      problems.push("is not in base units");
    }
    return problems.map((problem) => `${name}: ${problem}`);
  });
}
