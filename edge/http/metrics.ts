// The text format that Prometheus scrapes, version 0.0.4.

/** Its media type. */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** One value, and what tells it from the others of its metric. */
export interface Sample {
  labels?: Readonly<Record<string, string>>;
  value: number;
}

/** A metric with its samples; without any it is still announced. */
export interface Metric {
  name: string;
  help: string;
  type: "gauge" | "counter";
  samples: readonly Sample[];
}

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

/** The metrics as text, in the order given. */
export const metricsText = (metrics: readonly Metric[]): string =>
  metrics
    .flatMap(({ name, help, type, samples }) => [
      `# HELP ${name} ${escapeHelp(help)}`,
      `# TYPE ${name} ${type}`,
      ...samples.map((sample) => line(name, sample)),
    ])
    .map((text) => `${text}\n`)
    .join("");
