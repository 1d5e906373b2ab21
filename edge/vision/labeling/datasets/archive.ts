// Zip archives of labels, as they lie in the store: their directory, the few texts in them that may
// be labels, and images that are asked for, read by ranges. What else they hold is not fetched.

import { Readable } from "node:stream";
import type { R2Bucket } from "@cloudflare/workers-types";
import { type Entry, fromRandomAccessReaderPromise, RandomAccessReader, type ZipFile } from "yauzl";
import { Failure } from "../../../../shared/errors.ts";
import { withoutImageData } from "./image-data.ts";
import { IMPORT_FILES_MAX } from "./labels.ts";

/** Files in an archive, images among them. */
const ENTRIES_MAX = 100_000;
/** Bytes of all texts, unpacked: as much as a JSON body may have. */
const TEXT_BYTES_MAX = 32 * 1024 * 1024;
/** Bytes of all JSON with the images that LabelMe puts into it, which are not kept. */
const JSON_BYTES_MAX = 256 * 1024 * 1024;
/** Texts shrink some twenty times; what shrinks more was made to. */
const RATIO_MAX = 200;
/** Small texts may shrink as they like. */
const RATIO_BYTES_MIN = 64 * 1024;
/** Bytes that are fetched at a time, of texts and of images. */
const TEXT_CHUNK_BYTES = 1024 * 1024;
const IMAGE_CHUNK_BYTES = 4 * 1024 * 1024;

/** A text of an archive, by its path there. */
export interface ArchiveText {
  name: string;
  text: string;
}

/** What an archive holds. */
export interface ArchiveContent {
  texts: ArchiveText[];
  images: number;
  /** Paths of what is neither a text of labels nor an image. */
  others: string[];
}

const TEXT = /(\.(json|xml|txt|ya?ml|names|ini)|(^|\/)frames\.csv)$/i;
const JSON_TEXT = /\.json$/i;
/** Names of images. */
export const IMAGE = /\.(jpe?g|jpe|jfif|mpo|png|webp|bmp|tiff?|gif|avif|hei[cf])$/i;
/** What operating systems put into archives by themselves. */
const CLUTTER = /(^|\/)(__MACOSX\/|\._|\.DS_Store$|Thumbs\.db$|desktop\.ini$)/i;

const refusal = (why: string) => new Failure("invalid_request", `the archive is not taken: ${why}`);

/** An archive as it lies in the store. */
export interface StoredArchive {
  key: string;
  bytes: number;
}

/** Reads the texts of an archive. Fails with `invalid_request` for one that is broken or unsafe. */
export const readArchive = (bucket: R2Bucket, archive: StoredArchive): Promise<ArchiveContent> =>
  opened(bucket, archive, contentOf);

/** An image of an archive, by its path there; `bytes` are those that the directory tells. */
export interface ArchiveImage {
  name: string;
  bytes: number;
}

/** Masks that Pascal VOC and its exporters keep as images beside the photographs. */
const MASKS = /(^|\/)Segmentation(Class|Object)(Aug|Raw)?\//i;

/** The images of an archive, in the order of their bytes there. Fails as `readArchive` does. */
export const listImages = (bucket: R2Bucket, archive: StoredArchive): Promise<ArchiveImage[]> =>
  opened(bucket, archive, async (zip) => {
    const images: (ArchiveImage & { offset: number })[] = [];
    for await (const entry of filesOf(zip)) {
      const { fileName: name, uncompressedSize: bytes, relativeOffsetOfLocalHeader } = entry;
      if (!IMAGE.test(name) || MASKS.test(name)) continue;
      images.push({ name, bytes, offset: relativeOffsetOfLocalHeader });
    }
    return images.sort((one, other) => one.offset - other.offset);
  });

/**
 * Hands the named images of an archive over, in the order of their bytes there, until `take`
 * answers false. Fails as `readArchive` does, and with what `take` fails with; reading one that is
 * broken fails with `unsupported_media`.
 */
export async function readImages(
  bucket: R2Bucket,
  archive: StoredArchive,
  names: ReadonlySet<string>,
  take: (image: ArchiveImage, chunks: AsyncIterable<Uint8Array>) => Promise<boolean>,
): Promise<void> {
  let failure: { cause: unknown } | null = null;
  const readAll = async (zip: ZipFile, object: StoredObject) => {
    const entries: Entry[] = [];
    for await (const entry of filesOf(zip)) {
      if (names.has(entry.fileName)) entries.push(slim(entry));
    }
    entries.sort(
      (one, other) => one.relativeOffsetOfLocalHeader - other.relativeOffsetOfLocalHeader,
    );
    for (const entry of entries) {
      const { fileName: name, uncompressedSize: bytes } = entry;
      try {
        if (!(await take({ name, bytes }, chunksOf(zip, entry, object)))) return;
      } catch (cause) {
        failure = { cause };
        return;
      }
    }
  };
  await opened(bucket, archive, readAll, IMAGE_CHUNK_BYTES);
  // Only what is called above sets it, which the compiler does not follow.
  const failed = failure as { cause: unknown } | null;
  if (failed) throw failed.cause;
}

async function* chunksOf(
  zip: ZipFile,
  entry: Entry,
  object: StoredObject,
): AsyncGenerator<Uint8Array> {
  try {
    // The library's streams are of bytes, which their type does not say.
    yield* (await zip.openReadStreamPromise(entry)) as AsyncIterable<Uint8Array>;
  } catch (thrown) {
    if (object.failure) throw object.failure;
    const why = (thrown as Error).message.slice(0, 200);
    throw new Failure("unsupported_media", `the archive holds it broken: ${why}`);
  }
}

/** Lets `work` read an archive. What fails is `invalid_request`, but for failures of the store. */
async function opened<Result>(
  bucket: R2Bucket,
  archive: StoredArchive,
  work: (zip: ZipFile, object: StoredObject) => Promise<Result>,
  chunkBytes = TEXT_CHUNK_BYTES,
): Promise<Result> {
  const object = new StoredObject(bucket, archive, chunkBytes);
  try {
    const zip = await fromRandomAccessReaderPromise(object, archive.bytes, {
      strictFileNames: true,
      autoClose: false,
    });
    return await work(zip, object);
  } catch (thrown) {
    if (object.failure) throw object.failure;
    if (thrown instanceof Failure) throw thrown;
    const [why = ""] = (thrown as Error).message.split("\n");
    throw refusal(why.slice(0, 300));
  }
}

async function contentOf(zip: ZipFile): Promise<ArchiveContent> {
  const { entries, images, others } = await listEntries(zip);
  // As they lie in the file, the first one last, so that every stretch of it is fetched once.
  entries.sort((one, other) => other.relativeOffsetOfLocalHeader - one.relativeOffsetOfLocalHeader);
  const texts: ArchiveText[] = [];
  // Each entry leaves when its text comes: there is no room for all of both.
  let bytesLeft = TEXT_BYTES_MAX;
  for (let entry = entries.pop(); entry; entry = entries.pop()) {
    const { text, bytes } = await textOf(zip, entry, bytesLeft);
    bytesLeft -= bytes;
    texts.push({ name: entry.fileName, text });
  }
  texts.sort((one, other) => (one.name < other.name ? -1 : 1));
  return { texts, images, others };
}

/** The files of an archive, none of which is a link, encrypted, or there twice. */
async function* filesOf(zip: ZipFile): AsyncGenerator<Entry> {
  if (zip.entryCount > ENTRIES_MAX) throw refusal(`over ${ENTRIES_MAX} files`);
  const names = new Set<string>();
  for await (const entry of zip.eachEntry()) {
    entry.fileName = nameOf(entry);
    const { fileName: name } = entry;
    checkEntry(entry);
    if (name.endsWith("/") || CLUTTER.test(name)) continue;
    if (names.has(name)) throw refusal(`${name} is there twice`);
    names.add(name);
    yield entry;
  }
}

/** The entries that may be texts of labels, and what else lies beside them. */
async function listEntries(zip: ZipFile) {
  const entries: Entry[] = [];
  const others: string[] = [];
  let images = 0;
  const bytes = { json: 0, other: 0 };
  for await (const entry of filesOf(zip)) {
    const { fileName: name } = entry;
    if (IMAGE.test(name)) images += 1;
    else if (!TEXT.test(name)) others.push(name);
    else {
      bytes[JSON_TEXT.test(name) ? "json" : "other"] += entry.uncompressedSize;
      if (bytes.other > TEXT_BYTES_MAX) throw tooLong();
      if (bytes.json > JSON_BYTES_MAX) throw refusal(`over ${JSON_BYTES_MAX} bytes of JSON`);
      if (entries.push(slim(entry)) > IMPORT_FILES_MAX)
        throw refusal(`over ${IMPORT_FILES_MAX} texts`);
    }
  }
  return { entries, images, others };
}

/** The flag of an entry whose name is UTF-8, and the field that holds such a name besides. */
const UTF8_FLAG = 0x800;
const UTF8_NAME_FIELD = 0x7075;

/** An entry's name: some archivers write UTF-8 and do not say so. */
function nameOf({ fileName, fileNameRaw, generalPurposeBitFlag, extraFields }: Entry): string {
  const isTold =
    (generalPurposeBitFlag & UTF8_FLAG) !== 0 ||
    extraFields.some(({ id }) => id === UTF8_NAME_FIELD);
  if (isTold) return fileName;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(fileNameRaw);
  } catch {
    return fileName;
  }
}

const NO_BYTES = Buffer.alloc(0);

/** An entry without what reading it needs no more: of 100,000 that is most of the memory. */
function slim(entry: Entry): Entry {
  entry.fileNameRaw = NO_BYTES;
  entry.extraFieldRaw = NO_BYTES;
  entry.fileCommentRaw = NO_BYTES;
  entry.extraFields = [];
  return entry;
}

/** Names of files are indexed by all that they end with. */
const NAME_LENGTH_MAX = 500;
const NAME_PARTS_MAX = 16;
const NAME_SHOWN = 60;
const FILE_TYPE = 0o170000;
const PLAIN_TYPES = [0, 0o100000, 0o040000];

function checkEntry(entry: Entry) {
  const { fileName: name, compressedSize, uncompressedSize } = entry;
  const type = (entry.externalFileAttributes >>> 16) & FILE_TYPE;
  if (!PLAIN_TYPES.includes(type)) throw refusal(`${name} is a link, or no file`);
  if (name.length > NAME_LENGTH_MAX || name.split("/").length > NAME_PARTS_MAX) {
    throw refusal(
      `${name.slice(0, NAME_SHOWN)}… is over ${NAME_LENGTH_MAX} characters, or ${NAME_PARTS_MAX} folders`,
    );
  }
  if (entry.isEncrypted()) throw refusal(`${name} is encrypted`);
  if (uncompressedSize > RATIO_BYTES_MIN && uncompressedSize > RATIO_MAX * compressedSize) {
    throw refusal(`${name} unpacks to more than ${RATIO_MAX} times its size`);
  }
}

const tooLong = () => refusal(`over ${TEXT_BYTES_MAX} bytes of texts`);

/**
 * The text of an entry, which has as many bytes as the directory says, or reading fails. `bytes`
 * counts the text without LabelMe's images.
 */
async function textOf(
  zip: ZipFile,
  entry: Entry,
  bytesMax: number,
): Promise<{ text: string; bytes: number }> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });
  let text = "";
  let bytes = 0;
  try {
    const chunks: AsyncIterable<Uint8Array> = await zip.openReadStreamPromise(entry);
    for await (const chunk of JSON_TEXT.test(entry.fileName) ? withoutImageData(chunks) : chunks) {
      bytes += chunk.length;
      if (bytes > bytesMax) throw tooLong();
      text += decoder.decode(chunk, { stream: true });
    }
    return { text: text + decoder.decode(), bytes };
  } catch (thrown) {
    if (thrown instanceof Failure) throw thrown;
    if (thrown instanceof TypeError) throw refusal(`${entry.fileName} is not UTF-8`);
    throw refusal(`${entry.fileName}: ${(thrown as Error).message.slice(0, 200)}`);
  }
}

/** An object of the store, fetched in chunks, of which the last two are kept. */
class StoredObject extends RandomAccessReader {
  /** What the store failed with. */
  failure: unknown = null;
  readonly #bucket: R2Bucket;
  readonly #key: string;
  readonly #bytes: number;
  readonly #chunkBytes: number;
  readonly #chunks = new Map<number, Promise<Uint8Array>>();

  constructor(bucket: R2Bucket, { key, bytes }: StoredArchive, chunkBytes: number) {
    super();
    this.#bucket = bucket;
    this.#key = key;
    this.#bytes = bytes;
    this.#chunkBytes = chunkBytes;
  }

  override _readStreamForRange(start: number, end: number): Readable {
    return Readable.from(this.#read(start, end));
  }

  async *#read(start: number, end: number): AsyncGenerator<Uint8Array> {
    for (let from = start; from < end; ) {
      const index = Math.floor(from / this.#chunkBytes);
      const chunk = await this.#chunk(index);
      const offset = from - index * this.#chunkBytes;
      const some = chunk.subarray(offset, offset + end - from);
      if (some.length === 0) throw new Error("the archive ends too early");
      yield some;
      from += some.length;
    }
  }

  #chunk(index: number): Promise<Uint8Array> {
    const known = this.#chunks.get(index);
    const chunk = known ?? this.#fetch(index);
    this.#chunks.delete(index);
    this.#chunks.set(index, chunk);
    const [oldest] = this.#chunks.keys();
    if (oldest !== undefined && this.#chunks.size > 2) this.#chunks.delete(oldest);
    return chunk;
  }

  async #fetch(index: number): Promise<Uint8Array> {
    const offset = index * this.#chunkBytes;
    const length = Math.min(this.#chunkBytes, this.#bytes - offset);
    try {
      const object = await this.#bucket.get(this.#key, { range: { offset, length } });
      if (!object) throw new Error("an archive just stored is not there");
      return new Uint8Array(await object.arrayBuffer());
    } catch (thrown) {
      this.failure = thrown;
      throw thrown;
    }
  }
}
