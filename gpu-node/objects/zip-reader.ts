// Reads single files out of a zip archive on disk, as streams. Names in the archive are looked up
// and never used as paths, so they cannot lead anywhere.

import { type Entry, openPromise, type ZipFile } from "yauzl";

/** Bytes of an archive's directory, all of which is held in memory. */
const DIRECTORY_BYTES_MAX = 1_000_000;
/** Bytes of a directory's entry without its name, extra fields and comment. */
const ENTRY_BYTES = 46;
const STORED = 0;
const DEFLATED = 8;

/** The archive cannot be read; the message says why. */
export class BrokenZip extends Error {
  override readonly name = "BrokenZip";
}

/** An open archive; close it when nothing more is read from it. */
export class ZipReader {
  readonly #zip: ZipFile;
  readonly #entries: ReadonlyMap<string, Entry>;

  private constructor(zip: ZipFile, entries: ReadonlyMap<string, Entry>) {
    this.#zip = zip;
    this.#entries = entries;
  }

  /** Opens an archive and reads its directory. Fails with BrokenZip, or as the system does. */
  static async open(path: string): Promise<ZipReader> {
    const zip = await openPromise(path, { autoClose: false }).catch((cause: Error) => {
      // A file that may not be read says nothing of the archive in it.
      if ("syscall" in cause) throw cause;
      if (!/not a zip file/i.test(cause.message)) throw broken(cause);
      throw new BrokenZip("is no zip", { cause });
    });
    try {
      return new ZipReader(zip, await readDirectory(zip));
    } catch (thrown) {
      zip.close();
      throw thrown instanceof BrokenZip ? thrown : broken(thrown);
    }
  }

  /** Names of its files. */
  get names(): string[] {
    return [...this.#entries.keys()];
  }

  /**
   * A file's bytes, as many as the directory says. Fails with BrokenZip; reading on fails where
   * they cannot be unpacked or are not as many.
   */
  async stream(name: string): Promise<AsyncIterable<Uint8Array>> {
    const entry = this.#entries.get(name);
    if (!entry) throw new BrokenZip(`${name} is missing`);
    if (entry.compressionMethod !== STORED && entry.compressionMethod !== DEFLATED)
      throw new BrokenZip(`${name} is packed in a way that is not read`);
    return this.#zip.openReadStreamPromise(entry).catch((cause: unknown) => {
      throw broken(cause);
    });
  }

  close(): void {
    this.#zip.close();
  }
}

const broken = (cause: unknown) => new BrokenZip("is a broken zip", { cause });

async function readDirectory(zip: ZipFile): Promise<ReadonlyMap<string, Entry>> {
  const entries = new Map<string, Entry>();
  let bytes = 0;
  for await (const entry of zip.eachEntry()) {
    bytes += ENTRY_BYTES + entry.fileNameLength + entry.extraFieldLength + entry.fileCommentLength;
    if (bytes > DIRECTORY_BYTES_MAX) throw new BrokenZip("holds too many files");
    if (entry.isEncrypted())
      throw new BrokenZip(`${entry.fileName} is encrypted, which is not read`);
    entries.set(entry.fileName, entry);
  }
  return entries;
}
