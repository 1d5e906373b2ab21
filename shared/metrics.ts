// The text that Prometheus scrapes, version 0.0.4.

/** Its media type. */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** What tells a sample from the others of its metric. */
export type Labels = Readonly<Record<string, string>>;

/** One value. */
export interface Sample {
  labels?: Labels;
  value: number;
}

/** How observed values are distributed. */
export interface Distribution {
  labels?: Labels;
  /** Values in each bucket, not the sum up to it; the last one is above every bound. */
  counts: readonly number[];
  sum: number;
}

/** A metric with its samples; without any it is still announced. */
export type Metric = { name: string; help: string } & (
  | { type: "gauge" | "counter"; samples: readonly Sample[] }
  /** `bounds`: the upper bounds of its buckets, inclusive and rising, without infinity. */
  | { type: "histogram"; bounds: readonly number[]; samples: readonly Distribution[] }
);

const escapeHelp = (text: string) => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
const escapeValue = (text: string) => escapeHelp(text).replaceAll('"', '\\"');

function line(name: string, { labels = {}, value }: Sample): string {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escapeValue(text)}"`);
  return `${name}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${numeral(value)}`;
}

function numeral(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
}

/** The lines of a distribution: each bucket with all below it, the sum, the count. */
function distributionLines(
  name: string,
  bounds: readonly number[],
  { labels = {}, counts, sum }: Distribution,
): string[] {
  let below = 0;
  const buckets = [...bounds, Infinity].map((bound, index) => {
    below += counts[index] ?? 0;
    return line(`${name}_bucket`, { labels: { ...labels, le: numeral(bound) }, value: below });
  });
  return [
    ...buckets,
    line(`${name}_sum`, { labels, value: sum }),
    line(`${name}_count`, { labels, value: below }),
  ];
}

const linesOf = (metric: Metric): string[] =>
  metric.type === "histogram"
    ? metric.samples.flatMap((one) => distributionLines(metric.name, metric.bounds, one))
    : metric.samples.map((sample) => line(metric.name, sample));

/** The metrics as text, in the order given. */
export const metricsText = (metrics: readonly Metric[]): string =>
  metrics
    .flatMap((metric) => [
      `# HELP ${metric.name} ${escapeHelp(metric.help)}`,
      `# TYPE ${metric.name} ${metric.type}`,
      ...linesOf(metric),
    ])
    .map((text) => `${text}\n`)
    .join("");

/** A metric that shows how something stands now. */
export const gauge = (name: string, help: string, samples: readonly Sample[]): Metric => ({
  name,
  help,
  type: "gauge",
  samples,
});
