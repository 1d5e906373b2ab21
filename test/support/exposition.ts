// A strict reader of the text that Prometheus scrapes, version 0.0.4: every line must be of the
// format, every sample of an announced metric, and nothing may come twice.

export interface ScrapedMetric {
  type: string;
  help: string;
  /** Values by their labels, written `name="value"` and joined by commas. */
  samples: Map<string, number>;
}

const NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const LABEL = '[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\\\\n]|\\\\["\\\\n])*"';
const SAMPLE = new RegExp(
  `^(${NAME})(?:\\{(${LABEL}(?:,${LABEL})*)\\})? ([+-]Inf|NaN|-?\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?)$`,
);
const ANNOUNCEMENT = new RegExp(`^# (HELP|TYPE) (${NAME}) (.*)$`);

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
      last = name;
      continue;
    }
    const [, name = "", labels = "", value = ""] = SAMPLE.exec(line) ?? [];
    const metric = metrics.get(name);
    if (!metric || name !== last || !/^(gauge|counter)$/.test(metric.type)) {
      throw new Error(`not of the format: ${line}`);
    }
    if (metric.samples.has(labels)) throw new Error(`twice: ${line}`);
    metric.samples.set(labels, Number(value.replace("Inf", "Infinity")));
  }
  return metrics;
}
