// What the program of LiteRT and its parent say to each other.

/** An image for the file's input, in the shape that it is declared with. */
export interface LitertImage {
  input: string;
  pixels: Float32Array<ArrayBuffer>;
  shape: number[];
}

/**
 * `missing`: the runtime is not here. `ready`: the file is open, in a package of that version.
 * `problem`: the file could not be opened, or did not run.
 */
export type LitertAnswer =
  | { type: "missing"; reason: string }
  | { type: "ready"; runtime: string }
  | { type: "problem"; reason: string }
  | { type: "outputs"; outputs: Record<string, Float32Array> };
