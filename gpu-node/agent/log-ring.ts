// The device's log on its disk, in segments that are dropped from the oldest on when there is no
// more room; what was dropped is counted, and told. Lines are numbered from 1 within each boot of
// the agent. A line is written when it is appended, and flushed to the disk every five seconds and
// at its segment's end: a killed agent loses none, a power cut those of five seconds at most.

import { randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { DROPPED_RANGES_MAX, LOG_GAPS_MAX, LogLine, SeqRange } from "../../shared/wire/fleet.ts";
import { isDiskFull } from "../base/failure.ts";
import { readIfThere, writeDurably } from "./durable-file.ts";

/** The ring is made of at least so many segments. */
const SEGMENTS_MIN = 8;
const SEGMENT_BYTES_MAX = 256 * 1024;
/** What is handed over at once, but for a segment that is larger: a quarter of what may be. */
const PART_BYTES_MAX = 1024 * 1024;
/** Boots whose dropped lines are remembered: the service keeps no more of a device either. */
const BOOTS_MAX = 5_000;

const Cursor = z.object({
  /** The line up to which the service has all, by boot. */
  acked: z.record(z.string(), z.number()),
  dropped: z.record(z.string(), z.array(SeqRange)),
  /** All lines that were ever dropped here. */
  dropped_total: z.number(),
});

/** A line as the agent hands it in; its number is the ring's to give. */
export type NewLine = Omit<z.input<typeof LogLine>, "seq">;

/** Lines of one boot that the service does not have yet. */
export interface LogPart {
  bootId: string;
  lines: LogLine[];
  dropped: SeqRange[];
}

interface Segment {
  path: string;
  ordinal: number;
  bootId: string;
  /** The first and last line that it holds; `first` above `last` where there are none. */
  first: number;
  last: number;
  bytes: number;
}

const NAME = /^(\d{12})\.([\w-]{1,64})\.ndjson$/;

/** A log of bounded size. */
export class LogRing {
  readonly bootId = randomUUID();
  readonly #dir: string;
  readonly #bytesMax: number;
  readonly #segmentBytes: number;
  /** The oldest first; the last one is written to once it is of this boot. */
  #segments: Segment[] = [];
  #cursor: z.infer<typeof Cursor>;
  #handle: number | null = null;
  #isDirty = false;
  #seq = 0;

  constructor(dir: string, bytesMax: number) {
    this.#dir = dir;
    this.#bytesMax = bytesMax;
    this.#segmentBytes = Math.min(SEGMENT_BYTES_MAX, Math.floor(bytesMax / SEGMENTS_MIN));
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#cursor = this.#readCursor();
    this.#segments = fs
      .readdirSync(dir)
      .sort()
      .flatMap((name) => this.#readSegment(name) ?? []);
  }

  /** Lines that were let go of since the ring was made. */
  get dropped(): number {
    return this.#cursor.dropped_total;
  }

  /** Number of the line of this boot that was appended last; 0 before the first. */
  get last(): number {
    return this.#seq;
  }

  /** Whether the service lacks something. */
  get isBehind(): boolean {
    return this.next(1) !== null;
  }

  #readCursor(): z.infer<typeof Cursor> {
    try {
      return Cursor.parse(JSON.parse(readIfThere(join(this.#dir, "cursor.json")) ?? ""));
    } catch {
      // Then lines are sent again, and the service knows those that it has.
      return { acked: {}, dropped: {}, dropped_total: 0 };
    }
  }

  /** On a full disk it is kept in memory, and on the disk with the next change. */
  #keepCursor() {
    unlessFull(() => writeDurably(join(this.#dir, "cursor.json"), JSON.stringify(this.#cursor)));
  }

  /** A segment of an earlier start; what a cut left of its last line is no line. */
  #readSegment(name: string): Segment | null {
    const [, ordinal, bootId = ""] = NAME.exec(name) ?? [];
    if (ordinal === undefined) return null;
    const path = join(this.#dir, name);
    const lines = linesOf(path);
    const first = lines[0]?.seq ?? 1;
    const last = lines.at(-1)?.seq ?? 0;
    const { size: bytes } = fs.statSync(path);
    return { path, ordinal: Number(ordinal), bootId, first, last, bytes };
  }

  /** Appends a line; returns its number. Where the disk is full, the line counts as dropped. */
  append(line: NewLine): number {
    const seq = ++this.#seq;
    const bytes = Buffer.from(`${JSON.stringify({ ...line, seq })}\n`);
    try {
      const segment = this.#writable(seq, bytes.length);
      fs.writeSync(this.#handle as number, bytes);
      segment.last = seq;
      segment.bytes += bytes.length;
      this.#isDirty = true;
    } catch (thrown) {
      if (!isDiskFull(thrown)) throw thrown;
      // A part of it may be there: the next line begins in a segment of its own.
      this.#endSegment();
      this.#drop(this.bootId, { from: seq, to: seq });
    }
    return seq;
  }

  /** The segment that takes a line of so many bytes, after room was made for it. */
  #writable(seq: number, bytes: number): Segment {
    const last = this.#segments.at(-1);
    if (this.#handle !== null && last && last.bytes + bytes <= this.#segmentBytes) return last;
    this.#endSegment();
    const held = () => this.#segments.reduce((sum, one) => sum + one.bytes, 0);
    while (this.#segments.length > 0 && held() + this.#segmentBytes > this.#bytesMax) {
      this.#dropOldest();
    }
    const ordinal = (last?.ordinal ?? 0) + 1;
    const path = join(this.#dir, `${String(ordinal).padStart(12, "0")}.${this.bootId}.ndjson`);
    this.#handle = fs.openSync(path, "a", 0o600);
    const segment = { path, ordinal, bootId: this.bootId, first: seq, last: seq - 1, bytes: 0 };
    this.#segments.push(segment);
    return segment;
  }

  #endSegment() {
    if (this.#handle === null) return;
    const handle = this.#handle;
    this.flush();
    this.#handle = null;
    unlessFull(() => fs.closeSync(handle));
  }

  #dropOldest() {
    const segment = this.#segments.shift();
    if (!segment) return;
    const acked = this.#cursor.acked[segment.bootId] ?? 0;
    const from = Math.max(segment.first, acked + 1);
    // Told of before it is gone: a cut between the two loses no count.
    if (from <= segment.last) this.#drop(segment.bootId, { from, to: segment.last });
    fs.rmSync(segment.path, { force: true });
  }

  #drop(bootId: string, range: SeqRange) {
    const { dropped } = this.#cursor;
    const ranges = dropped[bootId] ?? [];
    const last = ranges.at(-1);
    if (last && last.to + 1 === range.from) last.to = range.to;
    else ranges.push(range);
    dropped[bootId] = this.#merged(bootId, ranges);
    this.#cursor.dropped_total += range.to - range.from + 1;
    for (const oldest of Object.keys(dropped).slice(0, -BOOTS_MAX)) delete dropped[oldest];
    this.#keepCursor();
  }

  /**
   * Where no line of an earlier boot is left, all are gone that the service does not have: one
   * range says so, whatever lies between.
   */
  #merged(bootId: string, ranges: SeqRange[]): SeqRange[] {
    const isHere = bootId === this.bootId || this.#segments.some((one) => one.bootId === bootId);
    if (isHere || ranges.length === 0) return ranges;
    const from = Math.min(...ranges.map((one) => one.from));
    return [{ from, to: Math.max(...ranges.map((one) => one.to)) }];
  }

  /** Flushes what was written to the disk; what finds no room is tried again. */
  flush(): void {
    const handle = this.#handle;
    if (handle === null || !this.#isDirty) return;
    unlessFull(() => {
      fs.fsyncSync(handle);
      this.#isDirty = false;
    });
  }

  /** The oldest lines that the service lacks, of one boot; null where it has all. */
  next(linesMax: number): LogPart | null {
    let part: LogPart | null = null;
    let held = 0;
    for (const { bootId, last, path, bytes } of this.#segments) {
      const acked = this.#cursor.acked[bootId] ?? 0;
      if (last <= acked) continue;
      const isFull = held + bytes > PART_BYTES_MAX || (part?.lines.length ?? 0) >= linesMax;
      if (part && (part.bootId !== bootId || isFull)) break;
      const lines = linesOf(path).filter(({ seq }) => seq > acked);
      if (lines.length === 0) continue;
      part ??= { bootId, lines: [], dropped: this.#droppedOf(bootId) };
      part.lines.push(...lines.slice(0, linesMax - part.lines.length));
      held += bytes;
    }
    if (part) return part;
    const [boot] = Object.keys(this.#cursor.dropped);
    return boot ? { bootId: boot, lines: [], dropped: this.#droppedOf(boot) } : null;
  }

  /** What was dropped of a boot and is to be told next; a copy, since it goes on. */
  #droppedOf(bootId: string): SeqRange[] {
    const ranges = this.#cursor.dropped[bootId] ?? [];
    return ranges.slice(0, DROPPED_RANGES_MAX).map(({ from, to }) => ({ from, to }));
  }

  /**
   * The service has all lines of a boot up to this one, and knows what was dropped of it. What it
   * misses beyond and is not here any more counts as dropped. What it acknowledged once it had: of
   * a boot that it forgot it says that it misses all of that, which is nothing to count. Gives the
   * number up to which all is known now.
   */
  ack(part: LogPart, { ackedSeq, gaps }: { ackedSeq: number; gaps: readonly SeqRange[] }): number {
    const { bootId } = part;
    const { acked, dropped } = this.#cursor;
    const before = acked[bootId] ?? 0;
    const missed = gaps
      .filter(({ to }) => to > before)
      .map(({ from, to }) => ({ from: Math.max(from, before + 1), to }));
    const known =
      ackedSeq >= before
        ? ackedSeq
        : upTo(part, { before, missed, isAll: gaps.length < LOG_GAPS_MAX });
    acked[bootId] = known;
    const lost = missed.flatMap((gap) => this.#lost(bootId, gap));
    const untold = withoutTold(dropped[bootId] ?? [], part.dropped);
    if (untold.length > 0) dropped[bootId] = untold;
    else delete dropped[bootId];
    for (const range of lost) this.#drop(bootId, range);
    this.#forgetDone();
    this.#keepCursor();
    return known;
  }

  /**
   * The service refuses a part for good: its lines count as dropped, and those behind them come
   * next. Where it has none, nobody is told any more what was dropped.
   */
  refuse({ bootId, lines, dropped: told }: LogPart): void {
    const { acked, dropped } = this.#cursor;
    const last = lines.at(-1)?.seq ?? 0;
    if (lines.length > 0) {
      acked[bootId] = Math.max(acked[bootId] ?? 0, last);
      this.#forgetDone();
      for (const range of rangesOf(lines)) this.#drop(bootId, range);
      return;
    }
    const untold = withoutTold(dropped[bootId] ?? [], told);
    if (untold.length > 0) dropped[bootId] = untold;
    else delete dropped[bootId];
    this.#keepCursor();
  }

  /** Removes segments of which the service has, or was told of, all lines. */
  #forgetDone() {
    const { acked } = this.#cursor;
    const isDone = (one: Segment) => one.last <= (acked[one.bootId] ?? 0);
    const open = this.#handle === null ? undefined : this.#segments.at(-1);
    for (const one of this.#segments.filter((segment) => segment !== open && isDone(segment))) {
      fs.rmSync(one.path, { force: true });
    }
    this.#segments = this.#segments.filter((segment) => segment === open || !isDone(segment));
    const known = new Set([this.bootId, ...this.#segments.map((one) => one.bootId)]);
    for (const boot of Object.keys(acked)) if (!known.has(boot)) delete acked[boot];
  }

  /** Lines of a range that are not here: those that a cut or a full disk took. */
  #lost(bootId: string, { from, to }: SeqRange): SeqRange[] {
    const lost: SeqRange[] = [];
    let next = from;
    const within = this.#segments.filter((one) => one.bootId === bootId && one.last >= from);
    for (const { path } of within) {
      for (const { seq } of linesOf(path)) {
        if (seq < next || seq > to) continue;
        if (seq > next) lost.push({ from: next, to: seq - 1 });
        next = seq + 1;
      }
    }
    return next <= to ? [...lost, { from: next, to }] : lost;
  }

  close(): void {
    this.#endSegment();
  }
}

/** Does what may be left undone where the disk is full. */
function unlessFull(work: () => void) {
  try {
    work();
  } catch (thrown) {
    if (!isDiskFull(thrown)) throw thrown;
  }
}

/**
 * The line up to which a service has all of a part, that had all up to `before` and forgot so; it
 * named what it misses, or as much of it as an answer holds.
 */
function upTo(
  { lines }: LogPart,
  { before, missed, isAll }: { before: number; missed: readonly SeqRange[]; isAll: boolean },
): number {
  const [first] = missed;
  if (first) return first.from - 1;
  return isAll ? Math.max(before, lines.at(-1)?.seq ?? 0) : before;
}

/** What was dropped since the service was told: ranges only grow at the end, and come there. */
const withoutTold = (ranges: readonly SeqRange[], told: readonly SeqRange[]): SeqRange[] =>
  ranges.flatMap(({ from, to }) => {
    const known = told.find((one) => one.from === from);
    if (!known) return [{ from, to }];
    return known.to < to ? [{ from: known.to + 1, to }] : [];
  });

/** The ranges that lines in order lie in. */
function rangesOf(lines: readonly LogLine[]): SeqRange[] {
  const ranges: SeqRange[] = [];
  for (const { seq } of lines) {
    const last = ranges.at(-1);
    if (last && last.to + 1 === seq) last.to = seq;
    else ranges.push({ from: seq, to: seq });
  }
  return ranges;
}

/** The whole lines of a segment, in order. */
function linesOf(path: string): LogLine[] {
  return (readIfThere(path) ?? "").split("\n").flatMap((text) => {
    try {
      return LogLine.parse(JSON.parse(text));
    } catch {
      return [];
    }
  });
}
