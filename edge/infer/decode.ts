// Image files into pixels. The header is judged before anything is decoded. A decoder that a broken
// file threw out of its work is not used again, since it would keep what it had taken.

import newJpeg from "@jsquash/jpeg/codec/dec/mozjpeg_dec.js";
import jpegModule from "@jsquash/jpeg/codec/dec/mozjpeg_dec.wasm";
import pngModule from "@jsquash/png/codec/pkg/squoosh_png_bg.wasm";
import newWebp from "@jsquash/webp/codec/dec/webp_dec.js";
import webpModule from "@jsquash/webp/codec/dec/webp_dec.wasm";
import { Failure } from "../../shared/errors.ts";
import { type ImageHeader, imageHeader } from "../../shared/image-header.ts";
import { EDGE_PIXELS_MAX } from "../../shared/wire/edge-inference.ts";
import type { RgbaImage } from "./resample.ts";
import { jpegSegments, pngChunks } from "./segments.ts";

/** What a file says of itself; fails with `unsupported_media` and `file_too_large`. */
export function judge(file: Uint8Array): ImageHeader {
  const header = imageHeader(file);
  if (!header) throw new Failure("unsupported_media", "the file is no JPEG, PNG or WebP");
  const { type, width, height } = header;
  const pixels = width * height;
  if (pixels === 0) throw new Failure("unsupported_media", "the image has no size");
  if (pixels > EDGE_PIXELS_MAX) {
    const detail =
      `the image has ${width} × ${height} pixels, and the edge looks at ${EDGE_PIXELS_MAX} at most: ` +
      "send it smaller, or have a GPU node predict, which takes 100,000,000";
    throw new Failure("file_too_large", detail, {
      data: { width, height, pixels_max: EDGE_PIXELS_MAX },
    });
  }
  if (!IS_WHOLE[type](file)) throw undecodable("it ends too early");
  return header;
}

const undecodable = (why: string, cause?: unknown) =>
  new Failure("unsupported_media", `the image cannot be decoded at the edge: ${why}`, { cause });

const SCANS_MAX = 100;

/** Whether a file has its end. Decoders fill what is missing of a JPEG with grey. */
const IS_WHOLE: Readonly<Record<ImageHeader["type"], (file: Uint8Array) => boolean>> = {
  "image/jpeg": (file) => {
    let data = file.length;
    for (const { name, end } of jpegSegments(file)) if (name === "da") data = end;
    let scans = 1;
    let ends = false;
    // Within an image's data 0xff is always followed by other bytes than these.
    for (let at = file.indexOf(0xff, data); at >= 0; at = file.indexOf(0xff, at + 1)) {
      if (file[at + 1] === 0xda) scans += 1;
      if (file[at + 1] === 0xd9) ends = true;
    }
    // Each scan is a walk over the whole image.
    if (scans > SCANS_MAX) throw undecodable(`it has ${scans} scans, where cameras write ten`);
    return ends;
  },
  "image/png": (file) => {
    for (const { name, end } of pngChunks(file)) if (name === "IEND") return end <= file.length;
    return false;
  },
  "image/webp": (file) => {
    const said = new DataView(file.buffer, file.byteOffset, file.length).getUint32(4, true);
    return said + 8 <= file.length;
  },
};

/** The pixels of a file that was judged; fails with `unsupported_media` for a broken one. */
export async function decode(file: Uint8Array, header: ImageHeader): Promise<RgbaImage> {
  let image: RgbaImage;
  try {
    image = await DECODERS[header.type](file);
  } catch (cause) {
    throw undecodable("it is broken, or of a kind that only GPU nodes read", cause);
  }
  const { data, width, height } = image;
  if (width !== header.width || height !== header.height || data.length !== width * height * 4) {
    throw undecodable("its header says another size");
  }
  return image;
}

const DECODERS: Readonly<
  Record<ImageHeader["type"], (file: Uint8Array) => Promise<RgbaImage> | RgbaImage>
> = {
  "image/jpeg": (file) => decodeBy(newJpeg, jpegModule, [file, IS_TURNED]),
  "image/png": decodePng,
  "image/webp": (file) => decodeBy(newWebp, webpModule, [file]),
};

/** A decoder as Emscripten makes it, with a memory of its own. */
interface Decoder {
  decode(...given: DecoderInput): RgbaImage | null;
}
/** A file, and of a JPEG whether it is turned as its EXIF says. */
type DecoderInput = [file: Uint8Array, isTurned?: boolean];
/** All kinds are turned alike, and later, when there is less to turn. */
const IS_TURNED = false;
type NewDecoder = (options: {
  noInitialRun: true;
  instantiateWasm(
    imports: WebAssembly.Imports,
    done: (instance: WebAssembly.Instance) => void,
  ): WebAssembly.Exports;
}) => Promise<Decoder>;

/**
 * The decoder that did its work last. One keeps its memory for the next image, since those that are
 * let go are collected late; of two kinds there would be no room for both.
 */
let idle: { of: WebAssembly.Module; one: IdleDecoder } | null = null;
interface IdleDecoder {
  decoder: Decoder;
  memory: WebAssembly.Memory | null;
}
const PAGE_BYTES = 64 * 1024;
/** Beside a model of some 50 MB in an isolate of 128. */
const DECODER_BYTES_MAX = 64 * 1024 * 1024;
const IDLE_BYTES_MAX = 40 * 1024 * 1024;

async function decodeBy(
  newDecoder: NewDecoder,
  module: WebAssembly.Module,
  given: DecoderInput,
): Promise<RgbaImage> {
  const one = idle?.of === module ? idle.one : await started(newDecoder, module);
  idle = null;
  const image = one.decoder.decode(...given);
  if (!image) throw new Error("the decoder gave no image");
  if ((one.memory?.buffer.byteLength ?? Infinity) <= IDLE_BYTES_MAX) idle = { of: module, one };
  return image;
}

async function started(newDecoder: NewDecoder, module: WebAssembly.Module): Promise<IdleDecoder> {
  let memory: WebAssembly.Memory | null = null;
  const decoder = await newDecoder({
    noInitialRun: true,
    instantiateWasm: (imports, done) => {
      const instance = new WebAssembly.Instance(module, imports);
      const exported = Object.values(instance.exports);
      memory = exported.find((one) => one instanceof WebAssembly.Memory) ?? null;
      if (memory) bound(memory);
      done(instance);
      return instance.exports;
    },
  });
  return { decoder, memory };
}

/** Lets a decoder's memory grow so far only: a small file may ask for gigabytes. */
function bound(memory: WebAssembly.Memory) {
  const grow = memory.grow.bind(memory);
  // The decoder's own code grows its memory by this method, and takes what it throws for a no.
  memory.grow = (pages) => {
    if (memory.buffer.byteLength + pages * PAGE_BYTES > DECODER_BYTES_MAX) {
      throw new RangeError("the decoder has as much memory as it gets");
    }
    return grow(pages);
  };
}

/** What the module of @jsquash/png has that is used here. */
interface PngExports {
  memory: WebAssembly.Memory;
  __wbindgen_malloc(bytes: number, alignment: number): number;
  decode(pointer: number, bytes: number): number;
}

/**
 * The package's JavaScript keeps one instance for ever, also one that broke, so this stands in for
 * it. The names of imports end in a sum of their signatures.
 */
function decodePng(file: Uint8Array): RgbaImage {
  let image: RgbaImage | null = null;
  const bytesAt = (pointer: number, length: number) =>
    new Uint8Array(exports.memory.buffer, pointer >>> 0, length);
  const imported = (name: string): ((...given: number[]) => number) => {
    if (name === "__wbindgen_throw") {
      return (pointer = 0, length = 0) => {
        throw new Error(new TextDecoder().decode(bytesAt(pointer, length)));
      };
    }
    if (!name.startsWith("__wbg_newwithownedu8clampedarray")) return () => 0;
    return (pointer = 0, length = 0, width = 0, height = 0) => {
      // Nothing runs in this instance any more, so its memory stays as it is.
      image = { data: bytesAt(pointer, length), width, height };
      return 0;
    };
  };
  const names = WebAssembly.Module.imports(pngModule).map(({ name }) => name);
  const wbg = Object.fromEntries(names.map((name) => [name, imported(name)]));
  const instance = new WebAssembly.Instance(pngModule, { wbg });
  // The exports of a module that is pinned.
  const exports = instance.exports as unknown as PngExports;
  const pointer = exports.__wbindgen_malloc(file.length, 1);
  bytesAt(pointer, file.length).set(file);
  exports.decode(pointer, file.length);
  if (!image) throw new Error("the decoder gave no image");
  return image;
}
