// Multipart uploads over S3, where those of presigned parts live.

import { AwsClient } from "aws4fetch";
import type { Parts } from "../../base/parts.ts";

const decode = (text: string) =>
  text
    .replace(/&quot;|&#34;/g, '"')
    .replace(/&lt;/g, "<")
    .replace(/&gt;/g, ">")
    .replace(/&amp;/g, "&");

const encode = (text: string) =>
  text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

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

/** An etag without the quotes that some write around it. */
export const bareEtag = (etag: string): string => etag.replace(/^"|"$/g, "");

/** The store's words for parts that are not those it holds. */
const WRONG_PARTS = /^(InvalidPart|InvalidPartOrder|EntityTooSmall|BadUpload|MalformedXML)$/;

/**
 * Puts the parts together, given their etags in order. `gone`: the upload was completed before, or
 * aborted. `wrong`: the parts that arrived are others.
 */
export async function completeMultipart(
  parts: Pick<Parts, "s3">,
  key: string,
  { uploadId, etags }: { uploadId: string; etags: readonly string[] },
): Promise<"completed" | "gone" | "wrong"> {
  const listed = etags.map(
    (etag, index) =>
      `<Part><PartNumber>${index + 1}</PartNumber><ETag>"${encode(etag)}"</ETag></Part>`,
  );
  const body = `<CompleteMultipartUpload>${listed.join("")}</CompleteMultipartUpload>`;
  const reply = await ask(parts, key, { uploadId }, { method: "POST", body });
  if (isGone(reply.xml)) return "gone";
  if (WRONG_PARTS.test(textOf(reply.xml, "Code") ?? "")) return "wrong";
  // A failure may come with 200, in the body.
  if (reply.status !== 200 || /<Error>/.test(reply.xml)) {
    throw refused("to complete an upload", reply);
  }
  return "completed";
}

/** Drops an upload and its parts; does nothing for one that the store no longer knows. */
export async function abortMultipart(
  parts: Pick<Parts, "s3">,
  key: string,
  uploadId: string,
): Promise<void> {
  const reply = await ask(parts, key, { uploadId }, { method: "DELETE" });
  if (reply.status >= 300 && !isGone(reply.xml)) throw refused("to abort an upload", reply);
}
