// Images that come otherwise than by uploads, such as those that devices send: each becomes a video
// of one frame.

import type { Parts } from "../../base/parts.ts";
import { addVideo, type NewVideo, objectKeys, type VideoRow } from "../videos/videos.ts";
import { IMAGE } from "./media-types.ts";

/** The video that an image becomes. */
export type ImageVideo = Pick<
  NewVideo,
  "workspaceId" | "projectId" | "videoId" | "filename" | "createdBy"
>;

/**
 * Stores an image and makes its video; both may have been done before. Fails with
 * `unsupported_media`, and as `addVideo` does.
 */
export async function addImage(
  parts: Parts,
  video: ImageVideo,
  file: Uint8Array<ArrayBuffer>,
): Promise<VideoRow> {
  const storageKey = objectKeys(video.workspaceId, video.videoId).source;
  const contentType = IMAGE.typeOf(file.subarray(0, IMAGE.headBytes));
  await parts.bucket.put(storageKey, file, { httpMetadata: { contentType } });
  const { source } = IMAGE;
  return addVideo(parts, { ...video, storageKey, source, bytes: file.length, contentType });
}
