// A multipart/form-data body, read as it comes: fields and files in the order in which they were
// sent, never more of a file in memory than is being looked at.

import type { Readable } from "node:stream";
import busboy from "busboy";
import { Failure } from "../../../../shared/errors.ts";
import { REFUSED_BYTES_MAX } from "../../../http/refused-body.ts";

export interface FormField {
  kind: "field";
  name: string;
  value: string;
}

export interface FormFile {
  kind: "file";
  name: string;
  /** As the sender calls it: for people, never for keys. */
  filename: string;
  /** The file's bytes; what was not read of them is lost when the next part is asked for. */
  chunks: AsyncIterable<Uint8Array>;
  skip(): void;
}

/**
 * Bytes of a body that are read at a time. Left to itself it comes in pieces of 4 KiB, whose
 * garbage takes several times the memory.
 */
export const CHUNK_BYTES = 64 * 1024;

/** How much a form may have beside the bytes of its files. */
export interface FormLimits {
  /** Bytes of one field. */
  fieldSize: number;
  fields: number;
  files: number;
}

/** Files of one form. */
export const FORM_FILES_MAX = 1_000;
/** Bytes of a field of a form. */
export const FORM_FIELD_BYTES_MAX = 10_000;
const LIMITS: FormLimits = {
  fieldSize: FORM_FIELD_BYTES_MAX,
  fields: 50,
  files: FORM_FILES_MAX,
};
const HEADER_PAIRS_MAX = 50;

/** What is told of a body that is no whole form. */
export const malformed = (cause: unknown) =>
  new Failure("bad_body", "the body must be multipart/form-data, complete to its last boundary", {
    cause,
  });

/** The parts of a form. Fails with `bad_body` for a body that is none, or ends too early. */
export async function* formParts(
  body: ReadableStream<Uint8Array> | null,
  contentType: string | undefined,
  limits: FormLimits = LIMITS,
): AsyncGenerator<FormField | FormFile> {
  if (!body || !contentType?.toLowerCase().startsWith("multipart/form-data")) {
    throw malformed(new Error("not a form"));
  }
  const parser = openParser(contentType, limits);
  const waiting: (FormField | FormFile)[] = [];
  const state: PumpState = { ended: false, abandoned: false, failure: undefined, wake: () => {} };
  const arrived = (part: FormField | FormFile) => {
    // The parser's types do not say so, but a part may have no name.
    if (part.name === undefined) return over(malformed(new Error("a part has no name")));
    waiting.push(part);
    state.wake();
  };
  const over = (failure?: unknown) => {
    state.ended = true;
    state.failure ??= failure;
    state.wake();
  };
  parser.on("field", (name, value, { valueTruncated }) => {
    // What is left of a long text is another text.
    if (valueTruncated) over(tooLong(name, limits));
    else arrived({ kind: "field", name, value });
  });
  parser.on("file", (name, stream, { filename }) => arrived(fileOf(name, stream, filename)));
  parser.on("error", (thrown) => over(malformed(thrown)));
  parser.on("close", () => over());
  for (const limit of ["partsLimit", "filesLimit", "fieldsLimit"] as const) {
    parser.on(limit, () => over(new Failure("invalid_request", "the form has too many parts")));
  }
  const pumping = pump(byteReader(body), parser, state).catch(over);
  try {
    for (;;) {
      const part = waiting.shift();
      if (part) yield part;
      else if (state.failure) throw state.failure;
      else if (state.ended) return;
      else {
        await new Promise<void>((wake) => {
          state.wake = wake;
        });
      }
    }
  } finally {
    state.abandoned = true;
    parser.destroy();
    await pumping;
  }
}

interface PumpState {
  ended: boolean;
  /** Nobody reads the form any longer. */
  abandoned: boolean;
  failure: unknown;
  wake: () => void;
}

const tooLong = (name: string, { fieldSize }: FormLimits) =>
  new Failure("invalid_request", `${plainName(name)}: has over ${fieldSize} bytes`);

function openParser(contentType: string, limits: FormLimits): busboy.Busboy {
  const { fieldSize, fields, files } = limits;
  const parts = fields + files;
  try {
    return busboy({
      headers: { "content-type": contentType },
      limits: { fieldSize, fields, files, parts, headerPairs: HEADER_PAIRS_MAX },
      defParamCharset: "utf8",
      preservePath: true,
      fileHwm: CHUNK_BYTES,
      highWaterMark: CHUNK_BYTES,
    });
  } catch (thrown) {
    throw malformed(thrown);
  }
}

function fileOf(name: string, stream: Readable, filename: string | undefined): FormFile {
  // The reader of its chunks hears of it; a file that nobody reads must not end the process.
  stream.on("error", () => {});
  return {
    kind: "file",
    name,
    filename: relativeName(filename ?? ""),
    chunks: chunksOf(stream),
    skip: () => stream.resume(),
  };
}

async function* chunksOf(stream: Readable): AsyncGenerator<Uint8Array> {
  try {
    yield* stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>;
  } catch (thrown) {
    throw malformed(thrown);
  } finally {
    // Whoever stops reading a file lets the parts after it come.
    stream.resume();
  }
}

/** Characters of a file's name as a request gives it, before it is made a plain one. */
export const FILENAME_CHARACTERS_MAX = 1_000;

const NAME_CHARACTERS_MAX = 255;

/** The names in a path, without control characters, that Postgres can store. */
const namesIn = (path: string): string[] =>
  path.split(/[/\\]/).map((name) =>
    name
      // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
      .replace(/[\x00-\x1f\x7f]/g, "")
      .trim()
      .slice(0, NAME_CHARACTERS_MAX)
      .toWellFormed(),
  );

/** A name without folders and control characters, that Postgres can store. */
export const plainName = (given: string): string => namesIn(given).at(-1) || "unnamed";

/** What leads elsewhere, or nowhere, in a path: the drive that it begins with, too. */
const NO_FOLDER = /^(\.{0,2}|[a-z]:)$/i;

/**
 * A file's path below the folder that was sent: `cam1/1.jpg`, which tells it from `cam2/1.jpg`. Of
 * a path that is too long, the folders next to the file.
 */
export function relativeName(given: string): string {
  const names = namesIn(given);
  let path = names.pop() || "unnamed";
  for (const folder of names.filter((name) => !NO_FOLDER.test(name)).reverse()) {
    if (folder.length + 1 + path.length > NAME_CHARACTERS_MAX) break;
    path = `${folder}/${path}`;
  }
  return path;
}

/** The runtime's reader that waits for so many bytes, or the end. */
interface ByteReader {
  readAtLeast(
    bytes: number,
    into: Uint8Array<ArrayBuffer>,
  ): Promise<{ done: boolean; value?: Uint8Array }>;
  cancel(): Promise<void>;
}

/** A reader of whole pieces of a body. */
export const byteReader = (body: ReadableStream<Uint8Array>) =>
  // The platform's own reader, which its types of streams do not have.
  body.getReader({ mode: "byob" }) as unknown as ByteReader;

/**
 * Feeds the body to the parser, no faster than it is read out. Of a form that nobody reads any
 * longer the rest is let pass, so that its sender gets to read the answer.
 */
async function pump(reader: ByteReader, parser: busboy.Busboy, state: PumpState) {
  let letPass = 0;
  try {
    for (;;) {
      const { done, value } = await reader.readAtLeast(CHUNK_BYTES, new Uint8Array(CHUNK_BYTES));
      if (done || !value) break;
      if (state.abandoned || parser.destroyed) {
        letPass += value.length;
        if (letPass > REFUSED_BYTES_MAX) return await reader.cancel();
      } else if (!parser.write(value)) await drained(parser);
    }
    if (!parser.destroyed) parser.end();
  } catch (thrown) {
    const failure = malformed(thrown);
    parser.destroy(failure);
    throw failure;
  }
}

function drained(parser: busboy.Busboy): Promise<void> {
  if (parser.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const go = () => {
      parser.off("drain", go).off("close", go);
      resolve();
    };
    parser.on("drain", go).on("close", go);
  });
}
