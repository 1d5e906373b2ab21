// An isolate whose memory for files of requests is full: of bodies that were announced and do not
// come.

import { type ClientRequest, request } from "node:http";
import { API } from "../../edge/vision/base/api.ts";
import { HELD_BYTES_MAX } from "../../edge/vision/serving/predict/held-bytes.ts";

/** What a body takes that a request to run a workflow announces, in and after its parsing. */
const BYTES = 8 * 1024 * 1024;
const COPIES = 2;

/** Announces a body and sends none of it. */
export function announce(
  url: string,
  headers: Record<string, string>,
  bytes: number,
): { sent: ClientRequest; answer: Promise<{ status: number; text: string }> } {
  const sent = request(url, {
    method: "POST",
    headers: { ...headers, "Content-Length": String(bytes) },
  });
  const answer = new Promise<{ status: number; text: string }>((resolve, reject) => {
    sent.on("error", reject);
    sent.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
    });
  });
  answer.catch(() => {});
  sent.flushHeaders();
  return { sent, answer };
}

/**
 * Fills the memory to its last byte until the returned function is called, while no other request
 * holds any; the token is of somebody who may run workflows.
 */
export async function fillMemory(visionUrl: string, token: string): Promise<() => void> {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const count = HELD_BYTES_MAX / (COPIES * BYTES);
  const waiting = Array.from({ length: count + 1 }, () =>
    announce(`${visionUrl}${API}/workflows/run`, headers, BYTES),
  );
  // One is too many.
  const { status } = await Promise.race(waiting.map(({ answer }) => answer));
  if (status !== 429) throw new Error(`a request beyond the memory was answered ${status}`);
  return () => {
    for (const { sent } of waiting) sent.destroy();
  };
}
