// Which image a task of Label Studio is of: its data has an address, whose form says where the file
// lies.

import { IMAGE } from "./archive.ts";
import { imageName } from "./labels.ts";

const ADDRESS_MAX = 4_096;
/** `s3://bucket/`, `https://host`, and the like. */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[^/]*/i;
const UPLOADS = /^\/?data\/upload\/(\d+\/)?/;
const LOCAL_FILES = /^\/?data\/local-files\/?\?/;

/** The text that percent signs stand for; itself where they stand for none. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The path of a file by its address: the one within the storage, without the query. */
function pathOf(address: string): string {
  const path = address.replace(ORIGIN, "");
  const isAddress = path !== address || UPLOADS.test(path) || LOCAL_FILES.test(path);
  if (!isAddress) return address;
  if (LOCAL_FILES.test(path)) {
    return new URLSearchParams(path.replace(LOCAL_FILES, "")).get("d") ?? path;
  }
  return decoded(path.replace(/[?#].*$/s, "").replace(UPLOADS, ""));
}

/**
 * The image that a task's data names, by `imageName`; else what is wrong with it: several texts of
 * it are images' addresses, or none is.
 */
export function taskImage(
  data: Readonly<Record<string, unknown>>,
): { image: string } | { problem: string } {
  const texts = Object.entries(data).filter(
    (entry): entry is [string, string] =>
      typeof entry[1] === "string" && entry[1] !== "" && entry[1].length <= ADDRESS_MAX,
  );
  const images = texts.filter(([, text]) => IMAGE.test(pathOf(text)));
  const named = images.length > 0 ? images : texts.filter(([key]) => key === "image");
  const [first, ...more] = named;
  if (!first) return { problem: "its data names no image" };
  if (more.length > 0) {
    return { problem: `which of its data is the image: ${named.map(([key]) => key).join(", ")}?` };
  }
  return { image: imageName(pathOf(first[1])) };
}
