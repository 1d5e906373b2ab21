// Masks in their forms, over random masks: run lengths and PNG lose nothing, the tight box holds
// exactly the mask, the ring follows the outline within its tolerance.

import fc from "fast-check";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import {
  decodeRle,
  dropSpecks,
  encodePng,
  encodeRle,
  type MaskWindow,
  maskArea,
  maskForms,
  maskFromLogits,
  POLYGON_TOLERANCE,
  polygon,
  rleOfWindow,
  spread,
  tightBox,
  wholeWindow,
} from "../../../gpu-node/segmenters/masks.ts";
import { Mask } from "../../../shared/tasks/tasks.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};

const masks = fc
  .tuple(fc.integer({ min: 1, max: 24 }), fc.integer({ min: 1, max: 24 }))
  .chain(([width, height]) =>
    fc.record({
      width: fc.constant(width),
      height: fc.constant(height),
      data: fc.uint8Array({ minLength: width * height, maxLength: width * height, max: 1 }),
    }),
  );

/** Smooth blobs, as models make them. */
const blobs = fc
  .array(
    fc.record({
      x: fc.integer({ min: 10, max: 70 }),
      y: fc.integer({ min: 10, max: 50 }),
      radius: fc.integer({ min: 3, max: 20 }),
    }),
    { minLength: 1, maxLength: 3 },
  )
  .map((circles): MaskWindow => {
    const [width, height] = [80, 60];
    const data = new Uint8Array(width * height);
    for (let y = 0; y < height; y++)
      for (let x = 0; x < width; x++)
        if (circles.some((circle) => Math.hypot(x - circle.x, y - circle.y) < circle.radius))
          data[y * width + x] = 1;
    return wholeWindow(data, width, height);
  });

/** Even-odd fill at pixel centres. */
function fill(ring: readonly number[], width: number, height: number): Uint8Array {
  const out = new Uint8Array(width * height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      let inside = false;
      for (let at = 0; at < ring.length; at += 2) {
        const [x1, y1] = [ring[at] as number, ring[at + 1] as number];
        const next = (at + 2) % ring.length;
        const [x2, y2] = [ring[next] as number, ring[next + 1] as number];
        const crosses = y1 > y + 0.5 !== y2 > y + 0.5;
        if (crosses && x + 0.5 < x1 + ((y + 0.5 - y1) / (y2 - y1)) * (x2 - x1)) inside = !inside;
      }
      if (inside) out[y * width + x] = 1;
    }
  return out;
}

describe("run lengths", () => {
  it("give back any mask, and add up to its pixels", () => {
    fc.assert(
      fc.property(masks, ({ data, width, height }) => {
        const rle = encodeRle(data, width, height);
        expect(rle.size).toEqual([height, width]);
        expect(rle.counts.reduce((sum, run) => sum + run, 0)).toBe(width * height);
        expect(rle.counts.slice(1).every((run) => run > 0)).toBe(true);
        expect(decodeRle(rle)).toEqual(data);
      }),
      { numRuns: 300, ...seed },
    );
  });

  it("go down the columns, zeros first, as COCO's do", () => {
    const mask = Uint8Array.of(1, 0, 0, 1, 0, 1);
    expect(encodeRle(mask, 3, 2)).toEqual({ size: [2, 3], counts: [0, 2, 3, 1] });
  });

  it.each([[[7]], [[1, 2]], [[-1, 7]], [[1.5, 4.5]], [[]]])(
    "refuse %j for six pixels",
    (counts) => {
      expect(() => decodeRle({ size: [2, 3], counts })).toThrow();
    },
  );
});

describe("a PNG", () => {
  it("has one channel with 255 on the object", async () => {
    const { data, width, height } = wholeWindow(Uint8Array.of(1, 0, 0, 1, 0, 1), 3, 2);
    const png = sharp(await encodePng(data, width, height));
    expect(await png.metadata()).toMatchObject({ format: "png", channels: 1, width, height });
    const { data: pixels } = await png
      .toColourspace("b-w")
      .raw()
      .toBuffer({ resolveWithObject: true });
    expect([...pixels]).toEqual([255, 0, 0, 255, 0, 255]);
  });
});

describe("the tight box", () => {
  it("holds every pixel of the mask and touches it on all sides", () => {
    fc.assert(
      fc.property(masks, ({ data, width, height }) => {
        const box = tightBox({ left: 3, top: 5, width, height, data });
        const xs: number[] = [];
        const ys: number[] = [];
        data.forEach((on, at) => {
          if (on) xs.push((at % width) + 3);
          if (on) ys.push(Math.floor(at / width) + 5);
        });
        const expected = [
          Math.min(...xs),
          Math.min(...ys),
          Math.max(...xs) + 1,
          Math.max(...ys) + 1,
        ];
        expect(box).toEqual(xs.length ? expected : null);
      }),
      { numRuns: 300, ...seed },
    );
  });
});

describe("the polygon", () => {
  it("without simplification holds exactly the largest piece, its holes filled", () => {
    fc.assert(
      fc.property(masks, ({ data, width, height }) => {
        const ring = polygon(wholeWindow(data, width, height), 0);
        if (data.every((on) => on === 0)) {
          expect(ring).toEqual([]);
          return;
        }
        const filled = fill(ring, width, height);
        // Filling it again changes nothing: what it holds is one piece without holes.
        const again = fill(polygon(wholeWindow(filled, width, height), 0), width, height);
        expect(again).toEqual(filled);
        const box = tightBox(wholeWindow(filled, width, height));
        const xs = ring.filter((_, at) => at % 2 === 0);
        const ys = ring.filter((_, at) => at % 2 === 1);
        expect(box).toEqual([Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)]);
        const covered = filled.reduce((sum, on, at) => sum + on * (data[at] ?? 0), 0);
        expect(covered).toBeGreaterThan(0);
      }),
      { numRuns: 300, ...seed },
    );
  });

  it("keeps a rectangle's four corners, clockwise from its first pixel", () => {
    const data = Uint8Array.from({ length: 48 }, (_, at) =>
      at % 8 >= 2 && at % 8 < 6 && at >= 8 && at < 32 ? 1 : 0,
    );
    const window = { left: 100, top: 50, width: 8, height: 6, data };
    expect(polygon(window)).toEqual([102, 51, 106, 51, 106, 54, 102, 54]);
  });

  it("simplified, strays from the outline by no more than its tolerance, and has few points", () => {
    fc.assert(
      fc.property(blobs, (window) => {
        const exact = polygon(window, 0);
        const simple = polygon(window);
        expect(simple.length).toBeLessThanOrEqual(exact.length);
        const far = (x: number, y: number) => {
          let min = Number.POSITIVE_INFINITY;
          for (let at = 0; at < simple.length; at += 2) {
            const next = (at + 2) % simple.length;
            const [ax, ay] = [simple[at] as number, simple[at + 1] as number];
            const [bx, by] = [simple[next] as number, simple[next + 1] as number];
            const length = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
            const t = Math.max(
              0,
              Math.min(1, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length),
            );
            min = Math.min(min, Math.hypot(x - ax - t * (bx - ax), y - ay - t * (by - ay)));
          }
          return min;
        };
        for (let at = 0; at < exact.length; at += 2)
          expect(far(exact[at] as number, exact[at + 1] as number)).toBeLessThanOrEqual(
            POLYGON_TOLERANCE + 1e-9,
          );
      }),
      { numRuns: 100, ...seed },
    );
  });

  it("survives every mask of three by three", () => {
    for (let bits = 0; bits < 512; bits++) {
      const data = Uint8Array.from({ length: 9 }, (_, at) => (bits >> at) & 1);
      const ring = polygon(wholeWindow(data, 3, 3));
      expect(ring.length === 0).toBe(bits === 0);
      if (bits > 0) expect(ring.length).toBeGreaterThanOrEqual(6);
    }
  });
});

describe("specks", () => {
  it("go, the largest piece stays, whatever its size", () => {
    const data = new Uint8Array(40 * 10);
    for (let y = 0; y < 8; y++) data.fill(1, y * 40, y * 40 + 20);
    data[30] = 1;
    data.fill(1, 9 * 40 + 25, 9 * 40 + 29);
    const window = wholeWindow(data, 40, 10);
    expect(maskArea(dropSpecks(window))).toBe(160);
    const single = wholeWindow(Uint8Array.of(0, 1, 0, 0), 2, 2);
    expect(maskArea(dropSpecks(single))).toBe(1);
  });

  it("are judged by the largest piece: an even split keeps both", () => {
    const data = new Uint8Array(20 * 10).map((_, at) => (at % 20 < 8 || at % 20 > 11 ? 1 : 0));
    expect(maskArea(dropSpecks(wholeWindow(data, 20, 10)))).toBe(160);
  });
});

describe("logits", () => {
  it("become the same pixels in a window as over the whole picture", () => {
    const size = 16;
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: -1, max: 1, noNaN: true }), {
          minLength: size * size,
          maxLength: size * size,
        }),
        fc.integer({ min: 5, max: 60 }),
        fc.integer({ min: 5, max: 60 }),
        (values, width, height) => {
          const logits = Float32Array.from(values, (value, at) => (at % 7 === 0 ? value : -1));
          const [cellsPerPixelX, cellsPerPixelY] = [size / width, size / height];
          const window = maskFromLogits(
            { logits, size, cellsPerPixelX, cellsPerPixelY },
            { width, height },
          );
          // One certain cell in each corner makes the window the whole image.
          const cornered = logits.slice();
          for (const at of [0, size - 1, size * (size - 1), size * size - 1]) cornered[at] = 1e-6;
          const whole = maskFromLogits(
            { logits: cornered, size, cellsPerPixelX, cellsPerPixelY },
            { width, height },
          );
          const inner = window ? spread(window, { width, height }) : new Uint8Array(width * height);
          const outer = whole ? spread(whole, { width, height }) : new Uint8Array(width * height);
          for (let y = Math.ceil(height / 8); y < height - height / 8; y++)
            for (let x = Math.ceil(width / 8); x < width - width / 8; x++)
              expect(inner[y * width + x]).toBe(outer[y * width + x]);
        },
      ),
      { numRuns: 60, ...seed },
    );
  });

  it("that are all negative are no mask", () => {
    const logits = new Float32Array(256).fill(-1);
    const grid = { logits, size: 16, cellsPerPixelX: 1, cellsPerPixelY: 1 };
    expect(maskFromLogits(grid, { width: 16, height: 16 })).toBeNull();
  });
});

describe("the forms of a mask", () => {
  it("fit the wire, and agree with each other", async () => {
    const mask = new Uint8Array(20 * 12);
    for (let y = 2; y < 9; y++) mask.fill(1, y * 20 + 4, y * 20 + 15);
    const forms = await maskForms(mask, 20, 12, 0.9);
    expect(Mask.parse(forms)).toEqual(forms);
    expect(forms?.bbox).toEqual([4, 2, 15, 9]);
    expect(decodeRle(forms?.rle as { size: [number, number]; counts: number[] })).toEqual(mask);
    expect(fill(forms?.polygon ?? [], 20, 12)).toEqual(mask);
    expect(await maskForms(new Uint8Array(240), 20, 12, 0.9)).toBeNull();
  });
});

describe("the run lengths of a window", () => {
  it("are those of the whole mask, wherever the window lies", () => {
    const side = fc.integer({ min: 1, max: 9 });
    fc.assert(
      fc.property(
        ...([side, side, side, side, side, side] as const),
        fc.array(fc.boolean(), { minLength: 81, maxLength: 81 }),
        (width, height, left, top, right, bottom, pixels) => {
          const image = {
            width: left - 1 + width + right - 1,
            height: top - 1 + height + bottom - 1,
          };
          const data = Uint8Array.from(pixels.slice(0, width * height), Number);
          const window = { left: left - 1, top: top - 1, width, height, data };
          const whole = spread(window, image);
          const expected = encodeRle(whole, image.width, image.height);
          expect(rleOfWindow(window, image)).toEqual(expected);
          expect(decodeRle(rleOfWindow(window, image))).toEqual(whole);
        },
      ),
      { numRuns: 300, ...seed },
    );
  });
});
