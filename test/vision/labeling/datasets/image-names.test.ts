// Which of two sets of videos an image's name stands for: those of an archive, and those that the
// project had before. Goal: labels land on the image that came with them.

import { expect, it } from "vitest";
import {
  firstOf,
  frameFinder,
  isFrame,
} from "../../../../edge/vision/labeling/datasets/image-names.ts";
import { frameId } from "../../../../shared/wire/vision.ts";

const still = (id: string, filename: string) => ({
  id,
  filename,
  frame_count: 1,
  width: 10,
  height: 10,
});
const OLD = "00000000-0000-4000-8000-000000000001";

it("is the archive's own image, though the project has another one of just this path", () => {
  const own = frameFinder([still("own", "train2017/000001.jpg")]);
  const project = frameFinder([still(OLD, "000001.jpg"), still("other", "000002.jpg")]);
  const find = firstOf(own, project);
  const videoOf = (name: string, id?: string) => {
    const found = find(name, id);
    return found && isFrame(found) ? found.video.id : found;
  };
  expect(videoOf("000001.jpg")).toBe("own");
  expect(videoOf("000002.jpg")).toBe("other");
  // What an export of ours names by its id is that frame.
  expect(videoOf("000001.jpg", frameId(OLD, 0))).toBe(OLD);
  expect(videoOf("000003.jpg")).toBeNull();
});
