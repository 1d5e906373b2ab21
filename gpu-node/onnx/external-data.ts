// Walks an ONNX file's structure without reading its weights, since bundles hold gigabytes, to see
// whether any tensor lives in another file. An "external" tensor names a path of its author's
// choice, which the runtime would open.

import type { FileHandle } from "node:fs/promises";

const WINDOW = 65_536;
const DEPTH_MAX = 64;

/** Fields that hold messages worth walking into, by message. Numbers are onnx.proto's. */
const CHILDREN = {
  model: { 7: "graph", 20: "training", 25: "function" },
  training: { 1: "graph", 2: "graph" },
  graph: { 1: "node", 5: "tensor", 15: "sparse" },
  function: { 7: "node", 11: "attribute" },
  node: { 5: "attribute" },
  attribute: { 5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse" },
  sparse: { 1: "tensor", 2: "tensor" },
  tensor: {},
} as const satisfies Record<string, Record<number, string>>;
type Message = keyof typeof CHILDREN;

const GRAPH_FIELD = 7;
const EXTERNAL_DATA_FIELD = 13;
const DATA_LOCATION_FIELD = 14;

/** Whether a tensor lies outside the file. Fails on what is no ONNX file. */
export async function readsOutside(file: FileHandle): Promise<boolean> {
  const { size } = await file.stat();
  const reader = new Reader(file, size);
  let outside = false;
  let graphs = 0;
  const walk = async (message: Message, from: number, end: number, depth: number) => {
    if (depth > DEPTH_MAX) throw new Error("nested too deep");
    for (let at = from; at < end; ) {
      const key = await reader.varint(at);
      const field = Math.floor(key.value / 8);
      const wire = key.value % 8;
      at = key.next;
      if (field === 0) throw new Error("field 0");
      if (wire === 0) {
        const { value, next } = await reader.varint(at);
        at = next;
        if (message === "tensor" && field === DATA_LOCATION_FIELD && value !== 0) outside = true;
      } else if (wire === 2) {
        const length = await reader.varint(at);
        const start = length.next;
        at = start + length.value;
        if (at > end) throw new Error("cut short");
        if (message === "tensor" && field === EXTERNAL_DATA_FIELD) outside = true;
        if (message === "model" && field === GRAPH_FIELD) graphs++;
        const child = (CHILDREN[message] as Record<number, Message>)[field];
        if (child) await walk(child, start, at, depth + 1);
      } else if (wire === 1) at += 8;
      else if (wire === 5) at += 4;
      else throw new Error(`wire type ${wire}`);
      if (at > end) throw new Error("cut short");
    }
  };
  await walk("model", 0, size, 0);
  if (graphs === 0) throw new Error("no graph");
  return outside;
}

class Reader {
  readonly #file: FileHandle;
  readonly #size: number;
  #window = Buffer.alloc(0);
  #start = 0;

  constructor(file: FileHandle, size: number) {
    this.#file = file;
    this.#size = size;
  }

  async varint(at: number): Promise<{ value: number; next: number }> {
    let value = 0;
    for (let index = 0; index < 10; index++) {
      const byte = await this.#byte(at + index);
      value += (byte & 127) * 2 ** (7 * index);
      if (byte < 128) return { value, next: at + index + 1 };
    }
    throw new Error("an endless number");
  }

  async #byte(at: number): Promise<number> {
    if (at >= this.#size) throw new Error("cut short");
    if (at < this.#start || at >= this.#start + this.#window.length) {
      const window = Buffer.alloc(Math.min(WINDOW, this.#size - at));
      const { bytesRead } = await this.#file.read(window, 0, window.length, at);
      if (bytesRead === 0) throw new Error("cut short");
      this.#window = window.subarray(0, bytesRead);
      this.#start = at;
    }
    return this.#window[at - this.#start] as number;
  }
}
