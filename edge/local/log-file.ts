// Log files that stay small: one that is full is set aside as `.1`, the one before it as `.2`, and
// the oldest goes. A disk without room costs lines, which are counted, and never the stack.

import * as fs from "node:fs/promises";

/** A log file that is being written. */
export interface LogFile {
  /** Takes text that ends with its newline; written soon, in order. After `close` it is lost. */
  write(text: string): void;
  /** Resolves when all that was taken is written or lost. */
  close(): Promise<void>;
}

/** How large a file may become, bytes, and how many there are of it with those set aside. */
export interface LogLimits {
  bytesMax: number;
  filesMax: number;
}

const LIMITS: LogLimits = { bytesMax: 10 * 1024 ** 2, filesMax: 5 };
/** What may wait for a slow disk, bytes. */
const WAITING_BYTES_MAX = 1024 ** 2;

/** Opens a log file, readable by its user alone, to go on at its end. */
export function openLogFile(path: string, limits: LogLimits = LIMITS): LogFile {
  return new RotatingFile(path, limits);
}

class RotatingFile implements LogFile {
  readonly #path: string;
  readonly #limits: LogLimits;
  #isClosed = false;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  /** How often text was lost since some was written last. */
  #lost = 0;
  #file: { handle: fs.FileHandle; bytes: number } | null = null;
  #writing: Promise<void> | null = null;

  constructor(path: string, limits: LogLimits) {
    this.#path = path;
    this.#limits = limits;
  }

  write(text: string) {
    if (this.#isClosed) return;
    const bytes = Buffer.from(text);
    const waitingMax = Math.min(WAITING_BYTES_MAX, this.#limits.bytesMax / 2);
    if (this.#waitingBytes + bytes.length > waitingMax) {
      this.#lost += 1;
      return;
    }
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = null;
    });
  }

  async close() {
    this.#isClosed = true;
    await this.#writing;
    await this.#file?.handle.close();
    this.#file = null;
  }

  async #writeAll() {
    while (this.#waiting.length > 0) {
      const [texts, lost] = [this.#waiting, this.#lost];
      this.#waiting = [];
      this.#waitingBytes = 0;
      const note = lost > 0 ? [Buffer.from(`{"event":"log_lost","times":${lost}}\n`)] : [];
      try {
        await this.#append(Buffer.concat([...note, ...texts]));
        this.#lost -= lost;
      } catch {
        this.#lost += texts.length;
      }
    }
  }

  /** Appends bytes, all or none. */
  async #append(bytes: Buffer) {
    this.#file ??= await this.#open();
    if (this.#file.bytes > 0 && this.#file.bytes + bytes.length > this.#limits.bytesMax) {
      await this.#setAside();
      this.#file = await this.#open();
    }
    const { handle, bytes: before } = this.#file;
    try {
      await handle.appendFile(bytes);
      this.#file.bytes += bytes.length;
    } catch (thrown) {
      await handle.truncate(before);
      throw thrown;
    }
  }

  async #open() {
    const handle = await fs.open(this.#path, "a", 0o600);
    return { handle, bytes: (await handle.stat()).size };
  }

  async #setAside() {
    await this.#file?.handle.close();
    this.#file = null;
    const names = Array.from({ length: this.#limits.filesMax }, (_, index) =>
      index === 0 ? this.#path : `${this.#path}.${index}`,
    );
    for (let index = names.length - 1; index > 0; index--) {
      const [from = "", to = ""] = [names[index - 1], names[index]];
      await fs.rename(from, to).catch((thrown: { code?: string }) => {
        if (thrown.code !== "ENOENT") throw thrown;
      });
    }
  }
}
