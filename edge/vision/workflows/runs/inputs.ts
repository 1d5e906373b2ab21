// What a run is given: images as data addresses in JSON, or as files of a form, and everything else
// as JSON. An image is in memory where all of a run are small enough, else in the store.

import { Failure } from "../../../../shared/errors.ts";
import { imageHeader } from "../../../../shared/image-header.ts";
import { joined } from "../../../../shared/tasks/line.ts";
import type { WorkflowImage } from "../../../../shared/workflow/values.ts";
import { toHex } from "../../auth/digest.ts";
import type { Parts } from "../../base/parts.ts";
import { type FormFile, type FormLimits, formParts } from "../../media/uploads/form.ts";
import { IMAGE } from "../../media/uploads/media-types.ts";
import { tooLarge } from "../../media/uploads/object-writer.ts";
import { type HeldShare, openShare } from "../../serving/predict/held-bytes.ts";
import { DIRECT_BYTES_MAX, each, IMAGE_BYTES_MAX } from "../../serving/predict/image-requests.ts";
import {
  type HeldFile,
  headOf,
  holding,
  type StoredFile,
  storeFile,
} from "../../serving/predict/predictions.ts";
import { RUN_IMAGES_MAX } from "./bodies.ts";

const LIMITS: FormLimits = { fieldSize: 600_000, fields: 10, files: RUN_IMAGES_MAX };
/** Bytes of a form beyond its files. */
const FIELDS_BYTES_MAX = 2 * 1024 * 1024;
const DATA_ADDRESS = /^data:image\/(?:jpeg|png|webp);base64,/;

const invalid = (detail: string) => new Failure("invalid_request", detail);

/** An image that a run was given. */
export class RunImage implements WorkflowImage {
  readonly frame: WorkflowImage["frame"];
  readonly type: string;
  /** What tells it from any other; of one in memory, the digest of its bytes. */
  readonly key: string;
  readonly file: Pick<HeldFile, "pieces"> | StoredFile;

  private constructor(head: Uint8Array, file: RunImage["file"], key: string) {
    const header = imageHeader(head);
    if (!header) throw new Failure("unsupported_media", "the file is no JPEG, PNG or WebP");
    this.frame = { width: header.width, height: header.height, offset: [0, 0], scale: [1, 1] };
    this.type = header.type;
    this.file = file;
    this.key = key;
  }

  /** An image in memory. */
  static async held(pieces: Uint8Array[]): Promise<RunImage> {
    const head = headOf(pieces, IMAGE.headBytes);
    IMAGE.typeOf(head);
    const bytes = Uint8Array.from(joined(pieces));
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return new RunImage(head, { pieces }, toHex(digest));
  }

  /** An image in the store, whose first bytes these are. */
  static stored(file: StoredFile, head: Uint8Array): RunImage {
    return new RunImage(head, file, file.key);
  }

  get bytes(): number {
    if ("key" in this.file) return this.file.bytes;
    return this.file.pieces.reduce((sum, { length }) => sum + length, 0);
  }

  /** As the wire has it, for an image in memory. */
  dataAddress(): string {
    const pieces = "key" in this.file ? [] : this.file.pieces;
    return `data:${this.type};base64,${joined(pieces).toBase64()}`;
  }
}

/** The image of a data address. Fails with `invalid_request`, `unsupported_media` and as such. */
export async function readDataAddress(wire: unknown): Promise<RunImage> {
  const [prefix] = typeof wire === "string" ? (DATA_ADDRESS.exec(wire) ?? []) : [];
  if (typeof wire !== "string" || !prefix) {
    throw invalid("an image is a file of the form, or a text data:image/jpeg;base64,… (PNG, WebP)");
  }
  const bytes = fromBase64(wire.slice(prefix.length));
  if (bytes.length === 0) throw invalid("an image is empty");
  return RunImage.held([bytes]);
}

function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.fromBase64(text);
  } catch {
    throw invalid("an image's data address must be base64 after its comma");
  }
}

/** A run's form, as far as it was read. */
export class RunForm {
  readonly fields: Readonly<Record<string, string>>;
  /** Its images by the names of their parts. */
  readonly images: ReadonlyMap<string, RunImage>;
  readonly #share: HeldShare;

  constructor(fields: RunForm["fields"], images: RunForm["images"], share: HeldShare) {
    this.fields = fields;
    this.images = images;
    this.#share = share;
  }

  /** The JSON of a field, or null where it is not there. Fails with `invalid_request`. */
  json(name: string): unknown {
    const text = this.fields[name];
    if (text === undefined) return null;
    try {
      return JSON.parse(text);
    } catch {
      throw invalid(`${name}: must be JSON`);
    }
  }

  /** Lets go of memory, once nobody looks at the images any more. */
  free(): void {
    this.#share.free();
  }
}

/** What a form may have, and whose its files are. */
interface FormRules {
  workspaceId: string;
  /** Names of fields. */
  fields: readonly string[];
}

/**
 * Reads a run's form: fields and images, in any order. Whatever fails, no object is left behind.
 * Fails with `overloaded` where files of other requests fill the memory.
 */
export async function readRunForm(
  parts: Parts,
  request: Request,
  { workspaceId, fields: known }: FormRules,
): Promise<RunForm> {
  const announced = Number(request.headers.get("Content-Length") ?? 0);
  const bytesMax = Math.min(IMAGE_BYTES_MAX, parts.limits.uploadBytesMax);
  if (announced > bytesMax + FIELDS_BYTES_MAX) throw tooLarge(bytesMax);
  const fields: Record<string, string> = Object.create(null);
  const images = new Map<string, RunImage>();
  const share = openShare(parts.clock, Math.min(announced, DIRECT_BYTES_MAX));
  try {
    const contentType = request.headers.get("Content-Type") ?? undefined;
    let left = bytesMax;
    for await (const part of formParts(request.body, contentType, LIMITS)) {
      if (images.has(part.name) || part.name in fields) throw invalid(`${part.name}: given twice`);
      if (part.kind === "field") {
        if (!known.includes(part.name)) {
          const names = known.join(", ") || "no fields";
          throw invalid(`${part.name.slice(0, 64)}: unknown field; this form knows ${names}`);
        }
        fields[part.name] = part.value;
        continue;
      }
      const held = [...images.values()].reduce((sum, { bytes }) => sum + bytes, 0);
      const heldMax = Math.max(0, DIRECT_BYTES_MAX - held);
      const image = await takeImage(parts, part, { workspaceId, bytesMax: left, heldMax, share });
      images.set(part.name, image);
      left -= image.bytes;
    }
    return new RunForm(fields, images, share);
  } catch (thrown) {
    share.free();
    await deleteStored(parts, images.values());
    throw thrown;
  }
}

async function takeImage(
  parts: Parts,
  { chunks }: FormFile,
  rules: { workspaceId: string; bytesMax: number; heldMax: number; share: HeldShare },
): Promise<RunImage> {
  const { workspaceId, bytesMax, heldMax, share } = rules;
  let head = new Uint8Array(0);
  const kind = {
    ...IMAGE,
    typeOf: (first: Uint8Array) => {
      head = Uint8Array.from(first);
      return IMAGE.typeOf(first);
    },
  };
  const file = { workspaceId, kind, bytesMax };
  const taken = await holding(parts, file, { heldMax, share })(chunks);
  return "key" in taken ? RunImage.stored(taken, head) : RunImage.held(taken.pieces);
}

/** Puts images into the store that are not there yet, in their order. */
export async function storeImages(
  parts: Parts,
  workspaceId: string,
  images: readonly RunImage[],
): Promise<StoredFile[]> {
  const stored: StoredFile[] = [];
  try {
    for (const { file } of images) {
      if ("key" in file) stored.push(file);
      else {
        const rules = { workspaceId, kind: IMAGE, bytesMax: IMAGE_BYTES_MAX };
        stored.push(await storeFile(parts, each(file.pieces), rules));
      }
    }
    return stored;
  } catch (thrown) {
    await parts.bucket.delete(stored.map(({ key }) => key));
    throw thrown;
  }
}

/** Deletes what of images lies in the store. */
export async function deleteStored(
  { bucket }: Pick<Parts, "bucket">,
  images: Iterable<RunImage>,
): Promise<void> {
  const keys = [...images].flatMap(({ file }) => ("key" in file ? file.key : []));
  if (keys.length > 0) await bucket.delete(keys);
}
