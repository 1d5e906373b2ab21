// How a bundle's manifest and its models' own words come together: the size of the square input,
// the images made for it, and whether every tensor that will be spoken to is there.

import type { Bbox } from "../../shared/tasks/tasks.ts";
import type { RgbImage } from "../media/image.ts";
import { fitSize, planes, resize } from "../media/image.ts";
import { float, type Session, shapes, type Tensor, type TensorShape } from "../onnx/runtime.ts";
import type { SegmenterManifest } from "./bundle.ts";
import { BundleBroken } from "./failures.ts";

/** The square that a model takes: its side in pixels and its numbers' type. */
export interface SquareInput {
  size: number;
  type: string;
}

/** An image as a model's square input, and the input's pixels per pixel of the image. */
export interface ImageTensor {
  tensor: Tensor;
  scaleX: number;
  scaleY: number;
}

/** Resizes an image into the square's top left corner and normalises it as the manifest says. */
export async function imageTensor(
  image: RgbImage,
  { size, type }: SquareInput,
  input: SegmenterManifest["input"],
): Promise<ImageTensor> {
  const fitted = input.resize === "fit" ? fitSize(image, size) : { width: size, height: size };
  const resized = await resize(image, { width: fitted.width, height: fitted.height });
  const pixels = planes(resized, size, {
    mean: input.mean.map((value) => value * 255) as [number, number, number],
    std: input.std.map((value) => value * 255) as [number, number, number],
  });
  return {
    tensor: float(pixels, [1, 3, size, size], type),
    scaleX: fitted.width / image.width,
    scaleY: fitted.height / image.height,
  };
}

/** The model's square input: the side is its own word, else the manifest's. */
export function imageInput(
  shape: TensorShape,
  manifest: SegmenterManifest,
  folder: string,
): SquareInput {
  const [, channels, rows, columns] = shape.shape;
  const sides = [rows, columns].filter((side): side is number => typeof side === "number");
  const size = sides[0] ?? manifest.input.size;
  const square = sides.every((side) => side === size);
  const isFloat = shape.type === "float32" || shape.type === "float16";
  const rgb = channels === 3 || typeof channels === "string";
  if (shape.shape.length !== 4 || !square || !rgb || !isFloat || size > 4096)
    throw new BundleBroken(
      folder,
      `"${shape.name}" takes ${shape.type} [${shape.shape}], not floats [1, 3, side, side]`,
    );
  return { size, type: shape.type };
}

/** Inputs of a session, each of which must be one that we fill. */
export function inputsOf(
  session: Session,
  names: { required: readonly string[]; optional?: readonly string[] },
  where: { folder: string; model: string },
): Map<string, TensorShape> {
  const inputs = shapes(session.inputMetadata);
  const lacking = names.required.filter((name) => !inputs.has(name));
  const unknown = [...inputs.keys()].filter(
    (name) => !names.required.includes(name) && !names.optional?.includes(name),
  );
  if (lacking.length > 0 || unknown.length > 0)
    throw new BundleBroken(
      where.folder,
      `${where.model} has the inputs ${[...inputs.keys()].join(", ")}; its manifest expects ` +
        `${names.required.join(", ")}`,
    );
  return inputs;
}

/** Fails with BundleBroken where a model lacks outputs that will be read. */
export function checkOutputs(
  session: Session,
  names: readonly string[],
  where: { folder: string; model: string },
): void {
  const lacking = names.filter((name) => !session.outputNames.includes(name));
  if (lacking.length > 0)
    throw new BundleBroken(
      where.folder,
      `${where.model} has the outputs ${session.outputNames.join(", ")} and lacks ` +
        `${lacking.join(", ")}`,
    );
}

/** A box as the x and y of its centre, its width and its height. */
export function toCentre([x1, y1, x2, y2]: Bbox): number[] {
  return [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1];
}

/** The corners of a box given by its centre, width and height. */
export function fromCentre([x, y, width, height]: readonly number[]): Bbox {
  const [cx = 0, cy = 0, w = 0, h = 0] = [x, y, width, height];
  return [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2];
}
