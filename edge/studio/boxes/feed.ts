// What a job's page learns of the server: the columns at first, then live events, and after a pause
// the rows that changed meanwhile. Events that come while columns are read wait for them.

import type { ColumnTable } from "../../../shared/columns/column-reader.ts";
import type { Annotation } from "../../../shared/wire/labeling.ts";

/** An event `edit` of a job's live topic; one without rows asks to read what changed. */
export interface FeedEvent {
  /** Number of the edit before it: whoever knows less missed something. */
  after_seq?: number;
  edits_seq: number;
  actor_id?: string | null;
  rows?: readonly Annotation[];
  deleted?: readonly string[];
}

/** What the feed needs of the world. */
export interface FeedPorts {
  /**
   * Reads `GET /jobs/{job}/annotations.columns` after a number, or the whole job for null; the
   * whole too where a difference would not do.
   */
  columns(after: number | null): Promise<ColumnTable>;
  after(milliseconds: number, call: () => void): () => void;
  random(): number;
}

interface FeedOwner {
  takeColumns(columns: ColumnTable): void;
  takeEvent(event: FeedEvent): void;
}

const PAUSE_MS = 1_000;
const PAUSE_MS_MAX = 60_000;
/** Milliseconds after which an event that did not come counts as lost. */
const GAP_MS = 2_000;

export class Feed {
  /** All edits up to this number are known. */
  cursor = 0;
  /** Events that came before an earlier one: the number before each and its own. */
  readonly #ahead = new Map<number, number>();
  #cancelGap: (() => void) | undefined;
  readonly #ports: FeedPorts;
  readonly #owner: FeedOwner;
  readonly #buffer: FeedEvent[] = [];
  #reading: Promise<void> | null = null;
  /** Number after which changes have to be read; infinity: none have. */
  #wanted = Number.POSITIVE_INFINITY;
  #isStopped = false;

  constructor(ports: FeedPorts, owner: FeedOwner) {
    this.#ports = ports;
    this.#owner = owner;
  }

  /** Reads all rows; rejects where that fails. */
  load(): Promise<void> {
    return this.#begin(async () => this.#take(await this.#ports.columns(null)));
  }

  /** Reads what changed after a number, or after all that is known; tries until it succeeds. */
  refresh(since = this.cursor): Promise<void> {
    this.#wanted = Math.min(this.#wanted, since, this.cursor);
    return this.#reading ?? this.#begin(() => Promise.resolve());
  }

  /** Takes an event, now or after the columns that are being read. */
  receive(event: FeedEvent): void {
    if (this.#reading) this.#buffer.push(event);
    else this.#handle(event);
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelGap?.();
  }

  #begin(first: () => Promise<void>): Promise<void> {
    const reading = first()
      .then(() => this.#readChanges())
      .finally(() => {
        this.#reading = null;
        for (const event of this.#buffer.splice(0)) this.receive(event);
      });
    this.#reading = reading;
    return reading;
  }

  async #readChanges(): Promise<void> {
    for (let failures = 0; this.#wanted < Number.POSITIVE_INFINITY && !this.#isStopped; ) {
      const since = this.#wanted;
      this.#wanted = Number.POSITIVE_INFINITY;
      try {
        this.#take(await this.#ports.columns(since));
        failures = 0;
      } catch {
        this.#wanted = Math.min(this.#wanted, since);
        const delay = Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** failures);
        failures += 1;
        const wait = delay * (0.5 + this.#ports.random() / 2);
        await new Promise<void>((done) => this.#ports.after(wait, done));
      }
    }
  }

  #take(columns: ColumnTable): void {
    if (this.#isStopped) return;
    this.#owner.takeColumns(columns);
    this.cursor = columns.header.edits_seq;
    if (columns.header.after_seq === null) this.#ahead.clear();
    this.#advance();
    // The rows have them already.
    const newer = this.#buffer.filter(({ edits_seq }) => edits_seq > this.cursor);
    this.#buffer.splice(0, this.#buffer.length, ...newer);
  }

  #handle(event: FeedEvent): void {
    if (this.#isStopped) return;
    if (!event.rows && !event.deleted) {
      void this.refresh();
      return;
    }
    this.#owner.takeEvent(event);
    if (event.after_seq !== undefined) this.#ahead.set(event.after_seq, event.edits_seq);
    this.#advance();
  }

  /** Moves on over events that follow without a gap; one that stays is read from the server. */
  #advance(): void {
    for (const [after, seq] of [...this.#ahead].sort(([one], [other]) => one - other)) {
      if (after > this.cursor) break;
      this.cursor = Math.max(this.cursor, seq);
      this.#ahead.delete(after);
    }
    if (this.#ahead.size === 0) {
      this.#cancelGap?.();
      this.#cancelGap = undefined;
    }
    // Events overtake each other by less.
    else {
      this.#cancelGap ??= this.#ports.after(GAP_MS, () => {
        this.#cancelGap = undefined;
        void this.refresh();
      });
    }
  }
}
