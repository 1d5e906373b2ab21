// Multipart uploads over S3, where those of presigned parts live: the bucket's own binding can
// neither sign a part nor list those that arrived.

import { AwsClient } from "aws4fetch";
import { assert } from "../../../shared/errors.ts";
import type { Parts } from "../auth/parts.ts";

export interface ArrivedPart {
  partNumber: number;
  etag: string;
  bytes: number;
}

const LIST_PAGES_MAX = 20;

const decode = (text: string) =>
  text
    .replace(/&quot;|&#34;/g, '"')
    .replace(/&lt;/g, "<")
    .replace(/&gt;/g, ">")
    .replace(/&amp;/g, "&");

/** The text of an element's first occurrence. */
function textOf(xml: string, element: string): string | null {
  const found = new RegExp(`<${element}>([^<]*)</${element}>`).exec(xml)?.[1];
  return found === undefined ? null : decode(found);
}

async function ask(
  { s3 }: Pick<Parts, "s3">,
  key: string,
  query: Record<string, string>,
  init: { method: string; body?: string },
): Promise<{ status: number; xml: string }> {
  const client = new AwsClient({
    accessKeyId: s3.accessKeyId.reveal(),
    secretAccessKey: s3.secretAccessKey.reveal(),
    service: "s3",
    region: "auto",
    retries: 2,
  });
  const url = new URL(`${s3.url}/${key.split("/").map(encodeURIComponent).join("/")}`);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const response = await client.fetch(url.href, init);
  return { status: response.status, xml: await response.text() };
}

/** The store's word for an upload that was completed, aborted or never begun. */
const isGone = (xml: string) => textOf(xml, "Code") === "NoSuchUpload";

function refused(what: string, { status, xml }: { status: number; xml: string }): Error {
  return new Error(`the object store refused ${what}: ${status} ${textOf(xml, "Code") ?? ""}`);
}

/** Begins an upload; returns the store's id of it. */
export async function beginMultipart(parts: Pick<Parts, "s3">, key: string): Promise<string> {
  const reply = await ask(parts, key, { uploads: "" }, { method: "POST" });
  const id = textOf(reply.xml, "UploadId");
  if (reply.status !== 200 || !id) throw refused("to begin an upload", reply);
  return id;
}

/** The parts that arrived, in order, or null when the upload is no more. */
export async function listParts(
  parts: Pick<Parts, "s3">,
  key: string,
  uploadId: string,
): Promise<ArrivedPart[] | null> {
  const arrived: ArrivedPart[] = [];
  let marker = "0";
  for (let page = 0; page < LIST_PAGES_MAX; page += 1) {
    const query = { uploadId, "part-number-marker": marker };
    const reply = await ask(parts, key, query, { method: "GET" });
    if (isGone(reply.xml)) return null;
    if (reply.status !== 200) throw refused("to list an upload's parts", reply);
    for (const [, part = ""] of reply.xml.matchAll(/<Part>(.*?)<\/Part>/gs)) {
      const [number, etag, size] = ["PartNumber", "ETag", "Size"].map((name) => textOf(part, name));
      assert(number && etag && size, "a listed part has a number, an etag and a size");
      arrived.push({ partNumber: Number(number), etag: bareEtag(etag), bytes: Number(size) });
    }
    marker = textOf(reply.xml, "NextPartNumberMarker") ?? "0";
    if (textOf(reply.xml, "IsTruncated") !== "true") return arrived;
  }
  throw new Error("an upload has more parts than there may be");
}

/** An etag without the quotes that some write around it. */
export const bareEtag = (etag: string): string => etag.replace(/^"|"$/g, "");

/** Puts the parts together. False when the upload is no more: it was completed, or aborted. */
export async function completeMultipart(
  parts: Pick<Parts, "s3">,
  key: string,
  uploadId: string,
  arrived: readonly ArrivedPart[],
): Promise<boolean> {
  const listed = arrived.map(
    ({ partNumber, etag }) =>
      `<Part><PartNumber>${partNumber}</PartNumber><ETag>"${etag}"</ETag></Part>`,
  );
  const body = `<CompleteMultipartUpload>${listed.join("")}</CompleteMultipartUpload>`;
  const reply = await ask(parts, key, { uploadId }, { method: "POST", body });
  if (isGone(reply.xml)) return false;
  // A failure may come with 200, in the body.
  if (reply.status !== 200 || /<Error>/.test(reply.xml)) {
    throw refused("to complete an upload", reply);
  }
  return true;
}

/** Drops an upload and its parts; one that is no more is none to drop. */
export async function abortMultipart(
  parts: Pick<Parts, "s3">,
  key: string,
  uploadId: string,
): Promise<void> {
  const reply = await ask(parts, key, { uploadId }, { method: "DELETE" });
  if (reply.status >= 300 && !isGone(reply.xml)) throw refused("to abort an upload", reply);
}
