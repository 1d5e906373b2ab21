// Names and texts of exported datasets, which other tools must read as they were meant.

import { describe, expect, it } from "vitest";
import { uniqueStems } from "../../gpu-node/tasks/export-dataset.ts";
import { outlineOf, pixels, xmlText } from "../../gpu-node/tasks/layout.ts";

describe("an export", () => {
  it("names files alike in no reader", () => {
    const names = ["a.mp4", "A.mov", "../../a.avi", "a-2.mp4", ".mp4", "", "x".repeat(300)];
    const stems = uniqueStems(
      names.map((filename, at) => ({ filename, video_id: `${at}0000000-0000-4000-8000` })),
    );
    expect(stems.slice(0, 4)).toEqual(["a-00000000", "A-10000000", "a-20000000", "a-2"]);
    expect(stems.slice(4, 6)).toEqual(["video-40000000", "video-50000000"]);
    expect(stems[6]).toHaveLength(100);
    const same = ["a", "a-1", "a"].map((filename) => ({ filename, video_id: "1" }));
    expect(uniqueStems(same)).toEqual(["a-1", "a-1-2", "a-1-3"]);
  });

  it("writes any text into XML, and pixels without noise", () => {
    expect(xmlText('a & <b> "c"')).toBe("a &amp; &lt;b&gt; &quot;c&quot;");
    expect(xmlText("a\u0000b\u0007c\nd\te")).toBe("a?b?c&#10;d&#9;e");
    expect([1, 0.1 + 0.2, 12.34567, 1e-9].map(pixels)).toEqual(["1", "0.3", "12.346", "0"]);
  });

  it("knows an annotation's ring, or its box's, or none", () => {
    const box = { id: "a", class_index: 0, bbox: [1, 2, 5, 7] as [number, number, number, number] };
    const ring = [1, 2, 5, 2, 5, 7];
    const rectangle = [1, 2, 5, 2, 5, 7, 1, 7];
    expect(outlineOf({ ...box, polygon: ring }, { rectangles: false })).toEqual(ring);
    expect(outlineOf({ ...box, polygon: null }, { rectangles: true })).toEqual(rectangle);
    expect(outlineOf({ ...box, polygon: [1, 2] }, { rectangles: true })).toEqual(rectangle);
    expect(outlineOf({ ...box, polygon: null }, { rectangles: false })).toBeNull();
  });
});
