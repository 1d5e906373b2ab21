// Names and texts of exported datasets, which other tools must read as they were meant.

import { describe, expect, it } from "vitest";
import { extensionOf, imageNames, uniqueStems } from "../../gpu-node/tasks/export-names.ts";
import { tracksOf } from "../../gpu-node/tasks/export-tracks.ts";
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

  it("names stills as they came, safe on any system", () => {
    const named = (filenames: string[], clip?: string) => {
      const stills = filenames.map((filename, at) => ({
        filename,
        video_id: `${at}0000000-0000-4000-8000`,
        still: true,
      }));
      const clips = clip ? [{ filename: clip, video_id: "c", still: false }] : [];
      return imageNames([...stills, ...clips], "original").map((nameOf) => nameOf(7));
    };
    expect(named(["cam 1/a (1).jpg", "Straße/図.png", "x.tar.jpg"])).toEqual([
      "cam 1/a (1)",
      "Straße/図",
      "x.tar",
    ]);
    expect(
      named([
        "../../etc/passwd.png",
        "/abs/b.png",
        "C:\\c.png",
        "con.jpg",
        "nul/x. .jpg",
        'a<b>:"|?*.png',
        "images/labels/i.png",
        "a.jpg/f.png",
        "l.txt/g.png",
        "...",
      ]),
    ).toEqual([
      "etc/passwd",
      "abs/b",
      "C_/c",
      "_con",
      "_nul/x",
      "a_b______",
      "_images/_labels/i",
      "a_jpg/f",
      "l_txt/g",
      "image",
    ]);
    // The same letters, composed or not, and of another case; and of another extension.
    expect(named(["d/é.png", "d/e\u0301.jpg", "D/É.webp", "d/f.png"])).toEqual([
      "d/é-00000000",
      "d/é-10000000",
      "D/É-20000000",
      "d/f",
    ]);
    expect(named(["clip_000007.png", "Clip_000008.jpg", "clip.png"], "clip.mp4")).toEqual([
      "clip_000007-00000000",
      "Clip_000008-10000000",
      "clip",
      "clip_000007",
    ]);
    const [long = ""] = named([`${"図".repeat(100)}.png`]);
    expect(Buffer.byteLength(long)).toBe(198);
    expect(
      imageNames([{ filename: "a b.png", video_id: "1", still: true }], "frames")[0]?.(0),
    ).toBe("a_b_000000");
  });

  it("keeps the extension of a file that says what it is", () => {
    const of = (filename: string, kind: string) =>
      extensionOf({ filename, video_id: "1" }, { names: "original", kind });
    expect(of("a.JPEG", ".jpg")).toBe(".JPEG");
    expect(of("a.png", ".jpg")).toBe(".jpg");
    expect(of("a.gif", ".jpg")).toBe(".jpg");
    expect(of("a", ".png")).toBe(".png");
    expect(
      extensionOf({ filename: "a.JPEG", video_id: "1" }, { names: "frames", kind: ".jpg" }),
    ).toBe(".jpg");
  });

  it("writes any text into XML, and pixels without noise", () => {
    expect(xmlText('a & <b> "c"')).toBe("a &amp; &lt;b&gt; &quot;c&quot;");
    expect(xmlText("a\u0000b\u0007c\nd\te")).toBe("a?b?c&#10;d&#9;e");
    expect([1, 0.1 + 0.2, 12.34567, 1e-9].map(pixels)).toEqual(["1", "0.3", "12.346", "0"]);
  });

  it("makes tracks of one class, with one shape on a frame, and an id for each other shape", () => {
    const one = (id: string, track_id: number | null, class_index = 0) => ({
      id,
      class_index,
      bbox: [1, 2, 5, 7] as [number, number, number, number],
      polygon: null,
      track_id,
    });
    const tracks = tracksOf([
      { index: 0, annotations: [one("a", 4), one("b", null), one("c", null)] },
      { index: 3, annotations: [one("d", 4), one("e", 4), one("f", 2, 1)] },
      { index: 5, annotations: [one("g", 4, 1), one("h", 2, 1)] },
      { index: 7, annotations: [one("i", 4, 1), one("j", 4)] },
    ]);
    expect(
      tracks.map(({ id, classIndex, shapes, isTracked }) => [
        ...[id, classIndex, isTracked],
        [...shapes].map(([frame, shape]) => `${frame}${shape.id}`).join(" "),
      ]),
    ).toEqual([
      [2, 1, true, "3f 5h"],
      [4, 0, true, "0a 3d 7j"],
      [5, 0, false, "0b"],
      [6, 0, false, "0c"],
      [7, 0, true, "3e"],
      [8, 1, true, "5g 7i"],
    ]);
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
