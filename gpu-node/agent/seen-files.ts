// Which files of a folder were looked at, over restarts: each by its name and when it was written,
// so that one which comes later is new however old it is. Files are remembered up to a bound; the
// oldest go, and what is no younger than those counts as looked at from then on.

import * as fs from "node:fs";
import { z } from "zod";
import { isDiskFull } from "../base/failure.ts";
import { readIfThere, writeDurably } from "./durable-file.ts";

/** Files that are remembered: some megabytes. */
const FILES_MAX = 50_000;
/** Lines of the file that say nothing new, before it is written anew. */
const SPARE_LINES_MAX = 10_000;

const Head = z.object({ source: z.string(), floor: z.number() });
const Line = z.tuple([z.string(), z.number()]);

/** A file of a folder. */
export interface SeenFile {
  name: string;
  /** When it was written, epoch milliseconds. */
  at: number;
}

/** What was looked at of one folder. */
export class SeenFiles {
  readonly #path: string | null;
  readonly #source: string;
  readonly #filesMax: number;
  #files = new Map<string, number>();
  /** What was written up to then counts as looked at. */
  #floor = -1;
  #lines = 0;

  /**
   * Takes up what is known of `source` at `path`; what is known there of another one is forgotten.
   * Without a path it is known until the agent ends.
   */
  constructor(path: string | null, source: string, filesMax = FILES_MAX) {
    this.#path = path;
    this.#source = source;
    this.#filesMax = filesMax;
    const text = (path && readIfThere(path)) ?? "";
    const [first = "", ...lines] = text.split("\n");
    const head = parsed(Head, first);
    if (head?.source === source) {
      this.#floor = head.floor;
      for (const line of lines) {
        const [name, at] = parsed(Line, line) ?? [];
        if (name !== undefined && at !== undefined) this.#files.set(name, at);
      }
      this.#lines = lines.length;
    }
    // A line that a cut left behind would spoil the next one.
    if (head?.source !== source || !text.endsWith("\n")) this.#rewrite();
  }

  has({ name, at }: SeenFile): boolean {
    return at <= this.#floor || this.#files.get(name) === at;
  }

  /** Remembers a file; a killed agent knows of it when it is started again. */
  add({ name, at }: SeenFile): void {
    this.#files.set(name, at);
    this.#lines += 1;
    if (this.#files.size > this.#filesMax) this.#forgetOldest();
    if (this.#lines > this.#files.size + SPARE_LINES_MAX) this.#rewrite();
    else this.#write((path) => fs.appendFileSync(path, `${JSON.stringify([name, at])}\n`));
  }

  /** Begins again: all files are new. */
  clear(): void {
    this.#files = new Map();
    this.#floor = -1;
    this.#rewrite();
  }

  #forgetOldest() {
    const byTime = [...this.#files].sort(([, one], [, other]) => one - other);
    const forgotten = byTime.slice(0, Math.ceil(byTime.length / 2));
    this.#floor = Math.max(this.#floor, forgotten.at(-1)?.[1] ?? -1);
    this.#files = new Map(byTime.slice(forgotten.length));
    this.#rewrite();
  }

  #rewrite() {
    const head = JSON.stringify({ source: this.#source, floor: this.#floor });
    const lines = [...this.#files].map((file) => JSON.stringify(file));
    this.#lines = lines.length;
    this.#write((path) => writeDurably(path, `${[head, ...lines].join("\n")}\n`));
  }

  /** On a full disk files are known until the agent ends: then they are looked at again. */
  #write(work: (path: string) => void) {
    try {
      if (this.#path !== null) work(this.#path);
    } catch (thrown) {
      if (!isDiskFull(thrown)) throw thrown;
    }
  }
}

function parsed<Schema extends z.ZodType>(schema: Schema, text: string): z.output<Schema> | null {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
