// Bytes of unknown number into one object of the store, with the memory of two parts: one fills
// while the other is on its way. An object appears whole or not at all.

import type { R2Bucket, R2MultipartUpload, R2UploadedPart } from "@cloudflare/workers-types";
import { Failure } from "../../../../shared/errors.ts";

/** Parts of a multipart upload are all of this size, but for the last. */
export const PART_BYTES = 8 * 1024 * 1024;

/** Where to, and what is taken. */
export interface WriteOptions {
  key: string;
  bytesMax: number;
  /** The first bytes that `typeOf` is given, or all there are. */
  headBytes: number;
  /** Content type by the first bytes; throws for what is not taken. */
  typeOf: (head: Uint8Array) => string;
}

/** An object that was written. */
export interface ObjectSummary {
  key: string;
  bytes: number;
  contentType: string;
}

/** The failure of a file of more bytes than are taken. */
export const tooLarge = (bytesMax: number) =>
  new Failure("file_too_large", `the file is larger than the ${bytesMax} bytes that are taken`, {
    data: { bytes_max: bytesMax },
  });

/**
 * Writes an object from chunks. When the chunks fail, when there are too many or they are of a type
 * that is not taken, nothing is left behind.
 */
export async function writeObject(
  bucket: R2Bucket,
  chunks: AsyncIterable<Uint8Array>,
  options: WriteOptions,
): Promise<ObjectSummary> {
  const writer = new ObjectWriter(bucket, options);
  try {
    for await (const chunk of chunks) await writer.add(chunk);
    return await writer.end();
  } catch (thrown) {
    await writer.abort();
    throw thrown;
  }
}

class ObjectWriter {
  readonly #bucket: R2Bucket;
  readonly #options: WriteOptions;
  #filling = new Uint8Array(0);
  #spare: Uint8Array<ArrayBuffer> | null = null;
  #filled = 0;
  #bytes = 0;
  #contentType: string | null = null;
  #upload: R2MultipartUpload | null = null;
  #sending: Promise<Uint8Array<ArrayBuffer>> | null = null;
  readonly #parts: R2UploadedPart[] = [];

  constructor(bucket: R2Bucket, options: WriteOptions) {
    this.#bucket = bucket;
    this.#options = options;
  }

  async add(chunk: Uint8Array): Promise<void> {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#options.bytesMax) throw tooLarge(this.#options.bytesMax);
    let taken = 0;
    while (taken < chunk.length) {
      if (this.#filled === this.#filling.length) await this.#makeRoom();
      const room = Math.min(this.#filling.length - this.#filled, chunk.length - taken);
      this.#filling.set(chunk.subarray(taken, taken + room), this.#filled);
      this.#filled += room;
      taken += room;
    }
    if (this.#contentType === null && this.#filled >= this.#options.headBytes) this.#recognize();
  }

  async end(): Promise<ObjectSummary> {
    const { key } = this.#options;
    if (this.#bytes === 0) throw new Failure("invalid_request", "file: is empty");
    if (this.#contentType === null) this.#recognize();
    const contentType = this.#contentType ?? "";
    const rest = this.#filling.subarray(0, this.#filled);
    if (this.#upload === null) {
      await this.#bucket.put(key, rest, { httpMetadata: { contentType } });
    } else {
      await this.#sent();
      if (this.#filled > 0) {
        this.#parts.push(await this.#upload.uploadPart(this.#parts.length + 1, rest));
      }
      await this.#upload.complete(this.#parts);
      this.#upload = null;
    }
    return { key, bytes: this.#bytes, contentType };
  }

  async abort(): Promise<void> {
    await this.#sent().catch(() => {});
    // The store itself forgets, within days, what cannot be aborted now.
    await this.#upload?.abort().catch(() => {});
  }

  #recognize() {
    const head = this.#filling.subarray(0, Math.min(this.#filled, this.#options.headBytes));
    this.#contentType = this.#options.typeOf(head);
  }

  /** Small files never take the memory of a part. */
  async #makeRoom() {
    const size = this.#filling.length;
    if (size < PART_BYTES) {
      const grown = new Uint8Array(Math.min(PART_BYTES, Math.max(64 * 1024, size * 4)));
      grown.set(this.#filling);
      this.#filling = grown;
      return;
    }
    if (this.#contentType === null) this.#recognize();
    this.#upload ??= await this.#bucket.createMultipartUpload(this.#options.key, {
      httpMetadata: { contentType: this.#contentType ?? "" },
    });
    this.#spare = (await this.#sent()) ?? this.#spare;
    const full = this.#filling;
    const sending = this.#send(this.#upload, full);
    // Its failure is told to whoever waits for it next.
    sending.catch(() => {});
    this.#sending = sending;
    this.#filling = this.#spare ?? new Uint8Array(PART_BYTES);
    this.#spare = null;
    this.#filled = 0;
  }

  async #send(upload: R2MultipartUpload, part: Uint8Array<ArrayBuffer>) {
    this.#parts.push(await upload.uploadPart(this.#parts.length + 1, part));
    return part;
  }

  /** Waits for the part on its way; returns its memory, to be filled again. */
  async #sent(): Promise<Uint8Array<ArrayBuffer> | null> {
    const sending = this.#sending;
    this.#sending = null;
    return sending && (await sending);
  }
}
