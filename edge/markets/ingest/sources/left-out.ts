// What a source leaves out of a provider's answer, since it cannot be read or contradicts itself: a
// row, or a document. All else is taken. Where most cannot be read, the format has changed.

import { Failure } from "../../../../shared/errors.ts";
import { MINUTE } from "../../../../shared/time.ts";
import { type Finding, finding } from "../gate.ts";

const DECIMAL = /^-?(\d+(\.\d*)?|\.\d+)$/;

/** A number in decimal digits; null for hex, an exponent and words. −0 and 0 are one value. */
export function decimalOf(text: string): number | null {
  const trimmed = text.trim();
  const value = DECIMAL.test(trimmed) ? Number(trimmed) + 0 : Infinity;
  return Number.isFinite(value) ? value : null;
}

/** Where a larger share of an answer is left out, its check fails. */
const SHARE_MAX = 0.05;
const SHOWN = 3;
/** A document is listed before all of it is there; one that was posted this long ago is. */
const SETTLED_MS = 30 * MINUTE;

type Rule = "unreadable_rows" | "contradicting_rows" | "unreadable_documents";

const isDrift = (thrown: unknown): thrown is Failure =>
  thrown instanceof Failure && thrown.code === "upstream_schema_drift";
const isUnreadable = (thrown: unknown): thrown is Failure =>
  isDrift(thrown) || (thrown instanceof Failure && thrown.code === "upstream_truncated");

/** Collects what one answer is taken without. */
export class LeftOut {
  /** Rows that were read, and documents. */
  #taken = { rows: 0, documents: 0 };
  #firstUnread: Failure | null = null;
  readonly #left = new Map<Rule, { count: number; where: string[] }>();

  /** Whether nothing was left out so far. */
  get isEmpty(): boolean {
    return this.#left.size === 0;
  }

  /**
   * The rows that `read` returns for the items; null stands for a row that is not wanted. An item
   * on which it fails with `upstream_schema_drift` is left out. Where these are more than half of
   * the items, the first failure is thrown, unless the items are one part of an answer
   * (`isPart`), whose whole `assertFormat` judges.
   */
  rows<Item, Row>(
    items: readonly Item[],
    read: (item: Item) => Row | null,
    { isPart = false, isCounted = true } = {},
  ): Row[] {
    const taken: Row[] = [];
    let left = 0;
    for (const item of items) {
      try {
        const row = read(item);
        if (row !== null) taken.push(row);
      } catch (thrown) {
        if (!isDrift(thrown)) throw thrown;
        left += 1;
        this.#firstUnread ??= thrown;
        if (!isPart && left > items.length / 2) throw this.#firstUnread;
        this.add("unreadable_rows", thrown.message);
      }
    }
    if (isCounted) this.#taken.rows += taken.length;
    return taken;
  }

  /** Fails as reading its rows did where more of them were left out than taken. */
  assertFormat(): void {
    const left = this.#left.get("unreadable_rows")?.count ?? 0;
    if (this.#firstUnread && left > this.#taken.rows) throw this.#firstUnread;
  }

  /**
   * What `read` makes of each document, in their order, oldest first. One that is broken or of
   * another format is left out. The failure is thrown where it is that of the newest document, or
   * of more than half of them, or of one that was posted a moment before `now`.
   */
  async documents<Entry extends { publishedAt: number }, Document>(
    entries: readonly Entry[],
    now: number,
    read: (entry: Entry) => Promise<Document>,
  ): Promise<Document[]> {
    const taken: Document[] = [];
    const failures: Failure[] = [];
    for (const entry of entries) {
      try {
        taken.push(await read(entry));
      } catch (thrown) {
        const isNew = now - entry.publishedAt < SETTLED_MS;
        const isNewFormat = isDrift(thrown) && entry === entries.at(-1);
        if (!isUnreadable(thrown) || isNew || isNewFormat) throw thrown;
        failures.push(thrown);
      }
    }
    const [first] = failures;
    if (first && failures.length > taken.length) throw first;
    for (const { message } of failures) this.add("unreadable_documents", message);
    this.#taken.documents += taken.length;
    return taken;
  }

  /**
   * The rows with each key once: rows that are alike are one row, and of rows that contradict each
   * other none is taken.
   */
  distinct<Row>(rows: readonly Row[], { keyOf, isAlike, named }: DistinctBy<Row>): Row[] {
    const byKey = new Map<string | number, { row: Row; isSound: boolean }>();
    for (const row of rows) {
      const key = keyOf(row);
      const known = byKey.get(key);
      if (!known) byKey.set(key, { row, isSound: true });
      else if (known.isSound && !isAlike(known.row, row)) {
        known.isSound = false;
        this.add("contradicting_rows", `two values for ${named(row)}`);
      }
    }
    return [...byKey.values()].filter(({ isSound }) => isSound).map(({ row }) => row);
  }

  /** Takes over what another one collected. */
  join(other: LeftOut): void {
    this.#taken.rows += other.#taken.rows;
    this.#taken.documents += other.#taken.documents;
    for (const [rule, { count, where }] of other.#left) {
      for (let one = 0; one < count; one++) this.add(rule, where[one] ?? where.at(-1) ?? "");
    }
  }

  /** Counts one thing that is left out, with what is told of it. */
  add(rule: Rule, where: string): void {
    const known = this.#left.get(rule) ?? { count: 0, where: [] };
    known.count += 1;
    if (known.where.length < SHOWN && !known.where.includes(where)) known.where.push(where);
    this.#left.set(rule, known);
  }

  /** A finding for each kind of what was left out; by its share a warning or an error. */
  findings(): Finding[] {
    return [...this.#left].map(([rule, { count, where }]) => {
      const taken = rule === "unreadable_documents" ? this.#taken.documents : this.#taken.rows;
      const severity = count > SHARE_MAX * (count + taken) ? "error" : "warning";
      return finding(severity, rule, count, where.join("; "));
    });
  }
}

/** What tells rows apart. */
interface DistinctBy<Row> {
  keyOf: (row: Row) => string | number;
  isAlike: (one: Row, other: Row) => boolean;
  /** How people know the row. */
  named: (row: Row) => string;
}
