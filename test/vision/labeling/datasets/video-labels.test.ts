// Labels of whole videos: CVAT for video 1.1 and MOT's gt.txt, as other tools write them.

import { beforeAll, describe, expect, it } from "vitest";
import { archiveLabels } from "../../../../edge/vision/labeling/datasets/archive-labels.ts";
import { type ImportProject, importProject, invalid } from "../../../support/archive-imports.ts";
import { createWorld } from "../../../support/world.ts";

let project: ImportProject;

beforeAll(async () => {
  const world = await createWorld({ services: ["vision"] });
  project = await importProject(world, {
    "my clip.mp4": 10,
    "MOT-02.mp4": 4,
    "stills/img1/000001.jpg": 1,
    "stills/img1/000002.jpg": 1,
  });
});

const box = (frame: number, x: number, outside = 0, more = "") =>
  `<box frame="${frame}" keyframe="1" outside="${outside}" occluded="0" xtl="${x}" ytl="10" ` +
  `xbr="${x + 20}" ybr="30" z_order="0"${more}></box>`;
const track = (id: number | string, shapes: string, label = "cat") =>
  `<track id="${id}" label="${label}" source="manual">${shapes}</track>`;
const SIZE = "<original_size><width>200</width><height>100</height></original_size>";
const LABELS = "<labels><label><name>cat</name></label><label><name>rare</name></label></labels>";
const cvat = (tracks: string, task = "<source>my clip.mp4</source>") =>
  `<?xml version="1.0"?><annotations><version>1.1</version><meta><task><name>a task</name>` +
  `<mode>interpolation</mode>${LABELS}${SIZE}${task}</task></meta>${tracks}</annotations>`;
const frames = (first: number, last: number, filter = "") =>
  `<source>my clip.mp4</source><start_frame>${first}</start_frame>` +
  `<stop_frame>${last}</stop_frame><frame_filter>${filter}</frame_filter>`;

/** Frame, track, and first corner of each annotation of a clip. */
const drawn = (annotations: Awaited<ReturnType<ImportProject["annotationsOf"]>>) =>
  annotations
    .map(({ frame, track: id, bbox }) => `${frame.split("#")[1]} t${id} ${bbox[0]}`)
    .sort();

describe("CVAT for video", () => {
  it("is tracks, drawn between their boxes until they are outside", async () => {
    const found = await project.imported({
      "task/annotations.xml": cvat(
        track(0, box(1, 10) + box(4, 16) + box(6, 16, 1) + box(8, 50) + box(9, 50, 1)) +
          track(5, box(7, 100)) +
          track(6, box(2, 150) + box(3, 150, 1)),
        frames(0, 9),
      ),
    });
    expect(found).toMatchObject({ unmatched: [], left_out: 0 });
    expect(found.notes).toEqual([
      "1 track of one shape taken as a label without a track",
      "1 file of tracks numbered from 0: they are numbered from 1 here",
      "5 boxes drawn between those of a track, as CVAT does",
    ]);
    expect(drawn(await project.annotationsOf(found))).toEqual([
      "1 t1 10",
      "2 t1 12",
      "2 tnull 150",
      "3 t1 14",
      "4 t1 16",
      "5 t1 16",
      "7 t6 100",
      "8 t1 50",
      "8 t6 100",
      "9 t6 100",
    ]);
    expect(project.imagesOf(found)).toEqual(["my clip.mp4"]);
  });

  it("is drawn on the frames of its task alone, which are those of the video", async () => {
    const found = await project.imported({
      "a.xml": cvat(track(3, box(0, 10) + box(8, 26) + box(12, 26)), frames(0, 12, "step=4")),
    });
    expect(drawn(await project.annotationsOf(found))).toEqual(["0 t3 10", "4 t3 18", "8 t3 26"]);
    expect(found).toMatchObject({ unmatched: ["my_clip_000012"], unmatched_annotations: 1 });
    const untold = await project.imported({
      "my clip.xml": cvat(track(3, box(0, 1) + box(9, 1)), ""),
    });
    expect(drawn(await project.annotationsOf(untold))).toEqual(["0 t3 1", "9 t3 1"]);
  });

  it("has polygons and turned boxes; what lies between polygons is not guessed", async () => {
    const polygon = (frame: number, outside = 0) =>
      `<polygon frame="${frame}" keyframe="1" outside="${outside}" occluded="0" ` +
      `points="10,10;30,10;30,30" z_order="0"></polygon>`;
    const found = await project.imported({
      "a.xml": cvat(
        track(1, polygon(0) + polygon(3) + polygon(4, 1)) +
          track(2, box(0, 50, 0, ' rotation="90"') + box(1, 50, 1)) +
          track(4, '<points frame="0" outside="0" points="1,2"></points>'),
        frames(0, 9),
      ),
    });
    expect(found.left_out).toBe(1);
    expect(found.notes).toEqual([
      "left out, as neither boxes nor polygons: 1 points",
      "1 track of one shape taken as a label without a track",
      "2 frames between polygons of a track left without a shape",
    ]);
    const kept = await project.annotationsOf(found);
    expect(kept.filter((one) => one.track === 1).map((one) => one.polygon)).toEqual([
      [10, 10, 30, 10, 30, 30],
      [10, 10, 30, 10, 30, 30],
    ]);
    expect(kept.find((one) => one.track === null)?.polygon).toHaveLength(8);
  });

  it("is refused in words that name the file and the track", async () => {
    const cases: [string, RegExp][] = [
      [cvat(track(1, "") + track(1, "")), /a\.xml: each track must have an id of its own/],
      [cvat(track("x", "")), /a\.xml: each track must have an id of its own/],
      [cvat(track(1, box(1, 1) + box(1, 2))), /a\.xml: track 1: has two shapes on frame 1/],
      [cvat(track(1, box(-1, 1))), /a\.xml: track 1: a frame must be a whole number/],
      [cvat(track(1, box(1, 1), "")), /a\.xml: a track has no label/],
      [cvat(track(1, box(1, 1)), frames(0, 1e9)), /a\.xml: has over 50000 frames/],
      [
        cvat(
          Array.from({ length: 9 }, (_, id) => track(id, box(0, 1))).join(""),
          frames(0, 19_999),
        ),
        /a\.xml: over 100000 shapes/,
      ],
      [
        "<annotations><meta><project><tasks><task/><task/></tasks></project></meta><track/></annotations>",
        /a\.xml: holds tracks of several tasks/,
      ],
    ];
    for (const [text, detail] of cases)
      expect(await project.refused({ "a.xml": text })).toEqual(invalid(detail));
  });

  it("of many polygons over many frames is read in a moment", () => {
    const polygons = Array.from({ length: 20_000 }, (_, id) =>
      track(id + 1, `<polygon frame="0" outside="0" points="1,1;9,1;9,9"></polygon>`),
    );
    const texts = [{ name: "a.xml", text: cvat(polygons.join(""), frames(0, 49_999)) }];
    const started = performance.now();
    const { labels, classes } = archiveLabels(
      { texts, images: 0, others: [] },
      { format: undefined, isKnown: () => true },
    );
    expect(labels).toHaveLength(20_000);
    expect(classes).toEqual(["cat", "rare"]);
    expect(performance.now() - started).toBeLessThan(20_000);
  });
});

const INFO = (name: string, length: number) =>
  `[Sequence]\nname=${name}\nimDir=img1\nframeRate=30\nseqLength=${length}\nimWidth=200\n` +
  "imHeight=100\nimExt=.jpg\n";

describe("MOT", () => {
  it("of CVAT counts pixels from 0, and has its own classes", async () => {
    const found = await project.imported({
      "gt/gt.txt":
        "1,1,10,20,30,20,1,2,1.0\n3,1,12,20,30,20,1,2,0.5\r\n2,-1,5,5,10,10,1,1,1\n2,9,5,5,9,9,1,1,1\n\n",
      "gt/labels.txt": "dog\ncat\n",
      "seqinfo.ini": INFO("MOT-02", 4),
      "img1/000001.jpg": "",
    });
    expect(found).toMatchObject({ unmatched: [], left_out: 0 });
    expect(found.notes).toEqual([
      "1 track of one shape taken as a label without a track",
      "1 image of the archive not taken: send images=true",
    ]);
    const kept = await project.annotationsOf(found);
    expect(kept.map((one) => [one.frame, one.class, one.track, one.bbox]).sort()).toEqual([
      ["MOT-02.mp4#0", "cat", 1, [10, 20, 40, 40]],
      ["MOT-02.mp4#1", "dog", null, [5, 5, 14, 14]],
      ["MOT-02.mp4#1", "dog", null, [5, 5, 15, 15]],
      ["MOT-02.mp4#2", "cat", 1, [12, 20, 42, 40]],
    ]);
  });

  it("of MOTChallenge counts pixels from 1, and says what to ignore", async () => {
    const found = await project.imported({
      "train/MOT-02/gt/gt.txt": "1,1,11,21,30,20,1,1,1\n2,1,11,21,30,20,1,1,1\n1,2,1,1,9,9,0,8,1\n",
      "train/MOT-02/det/det.txt": "1,-1,11,21,30,20,0.9,-1,-1,-1\n",
      "train/MOT-02/seqinfo.ini": INFO("MOT-02", 2),
    });
    expect(found.left_out).toBe(1);
    expect(found.notes).toEqual([
      "1 sequence without labels.txt read by MOTChallenge's rules",
      "1 box left out, marked to be ignored",
      "1 file not read: train/MOT-02/det/det.txt",
    ]);
    const kept = await project.annotationsOf(found);
    expect(kept.map((one) => [one.frame, one.class, one.track, one.bbox]).sort()).toEqual([
      ["MOT-02.mp4#0", "pedestrian", 1, [10, 20, 40, 40]],
      ["MOT-02.mp4#1", "pedestrian", 1, [10, 20, 40, 40]],
    ]);
  });

  it("may be of images that were uploaded with their folders", async () => {
    const found = await project.imported({
      "stills/gt/gt.txt": "1,1,11,21,30,20,1,-1,-1,-1\n2,1,11,21,30,20,1,-1,-1,-1\n",
    });
    expect(project.imagesOf(found)).toEqual(["stills/img1/000001.jpg", "stills/img1/000002.jpg"]);
  });

  it("is refused in words that name the line", async () => {
    const cases: [string, RegExp][] = [
      ["1,1,2,3,4\n", /gt\/gt\.txt, line 1: must be frame,id,x,y,w,h/],
      ["1,1,2,3,4,x,1,1,1\n", /line 1: must be frame,id,x,y,w,h/],
      ["0,1,2,3,4,5,1,1,1\n", /line 1: must be frame,id,x,y,w,h/],
      ["1,1,2,3,4,5,1,1,1\n1,1,2,3,4,5,1,3,1\n", /line 2: class 3 is none of those/],
      ["1,1,2,3,4,5,1,1,1\n1,1,2,3,4,5,1,1,1\n", /gt\/gt\.txt: track 1 has two boxes on frame 1/],
    ];
    for (const [text, detail] of cases)
      expect(
        await project.refused({
          "gt/gt.txt": text,
          "gt/labels.txt": "cat\ndog\n",
          "seqinfo.ini": INFO("MOT-02", 4),
        }),
      ).toEqual(invalid(detail));
  });
});
