// Counters and distributions that grow in a process's memory, as a table declares them, until they
// are taken to where those of several processes are summed.

import type { Labels, Metric } from "./metrics.ts";

/** What is counted under one name. */
export interface TallyEntry {
  help: string;
  /** Names of its labels; each takes few values, all of them known to the code. */
  labels: readonly string[];
  /** Upper bounds of a distribution's buckets, rising; without them it is a counter. */
  bounds?: readonly number[];
}

/** What is counted, by the metric's whole name. */
export type TallyTable = Readonly<Record<string, TallyEntry>>;

/** What was counted under one name and one choice of labels. */
export interface Series {
  metric: string;
  /** Values of the labels, in the table's order. */
  values: readonly string[];
  /** A counter's one number, or how many values fell into each bucket of a distribution. */
  counts: readonly number[];
  /** Sum of a distribution's values; 0 for a counter. */
  sum: number;
}

/** Names a series among all. */
export const seriesKey = ({ metric, values }: Pick<Series, "metric" | "values">): string =>
  JSON.stringify([metric, ...values]);

export class Tally<Table extends TallyTable> {
  readonly #table: Table;
  #series = new Map<string, Series>();

  constructor(table: Table) {
    this.#table = table;
  }

  /** Counts something; labels that are left out are empty. */
  count(metric: keyof Table & string, labels: Labels = {}, by = 1): void {
    this.add([{ metric, values: this.#valuesOf(metric, labels), counts: [by], sum: 0 }]);
  }

  /** Puts a value into its bucket. */
  observe(metric: keyof Table & string, labels: Labels, value: number): void {
    const { bounds = [] } = this.#table[metric] as TallyEntry;
    const bucket = bounds.findIndex((bound) => value <= bound);
    const counts = Array.from({ length: bounds.length + 1 }, () => 0);
    counts[bucket < 0 ? bounds.length : bucket] = 1;
    this.add([{ metric, values: this.#valuesOf(metric, labels), counts, sum: value }]);
  }

  /**
   * Adds what another tally counted. Series that the table does not have in this form are left out:
   * those of another release.
   */
  add(series: readonly Series[]): void {
    for (const one of series) {
      if (!this.#fits(one)) continue;
      const key = seriesKey(one);
      const known = this.#series.get(key);
      this.#series.set(key, known ? summed(known, one) : one);
    }
  }

  /** All there is, which is gone from here then. */
  take(): Series[] {
    const taken = [...this.#series.values()];
    this.#series = new Map();
    return taken;
  }

  /** The series of these keys, as they stand. */
  under(keys: Iterable<string>): Series[] {
    return [...keys].flatMap((key) => this.#series.get(key) ?? []);
  }

  list(): Series[] {
    return [...this.#series.values()];
  }

  /** Every metric of the table, also those that nothing was counted under yet. */
  metrics(): Metric[] {
    const byMetric = Map.groupBy(this.#series.values(), ({ metric }) => metric);
    return Object.entries(this.#table).map(([name, { help, labels, bounds }]) => {
      const own = (byMetric.get(name) ?? []).toSorted((one, other) =>
        seriesKey(one) < seriesKey(other) ? -1 : 1,
      );
      const labelsOf = ({ values }: Series) =>
        Object.fromEntries(labels.map((label, index) => [label, values[index] ?? ""]));
      if (!bounds) {
        const samples = own.map((one) => ({ labels: labelsOf(one), value: one.counts[0] ?? 0 }));
        // One without labels has a value from the start, so that its first rise is seen.
        const none = labels.length === 0 && samples.length === 0;
        return { name, help, type: "counter", samples: none ? [{ value: 0 }] : samples };
      }
      const samples = own.map((one) => ({
        labels: labelsOf(one),
        counts: one.counts,
        sum: one.sum,
      }));
      return { name, help, type: "histogram", bounds, samples };
    });
  }

  #valuesOf(metric: keyof Table & string, labels: Labels): string[] {
    return (this.#table[metric] as TallyEntry).labels.map((label) => labels[label] ?? "");
  }

  #fits({ metric, values, counts }: Series): boolean {
    const entry = Object.hasOwn(this.#table, metric) ? this.#table[metric] : undefined;
    if (!entry) return false;
    const buckets = entry.bounds ? entry.bounds.length + 1 : 1;
    return values.length === entry.labels.length && counts.length === buckets;
  }
}

const summed = (one: Series, other: Series): Series => ({
  metric: one.metric,
  values: one.values,
  counts: one.counts.map((count, index) => count + (other.counts[index] ?? 0)),
  sum: one.sum + other.sum,
});
