// `npm run bench -- vision-upload`: what an upload through the vision Worker costs on the local
// stack: MB/s, and how far workerd grows above idle. BYTES sets the size; the default is 2 GB.

import { availableParallelism, cpus } from "node:os";
import { API } from "../../edge/vision/base/api.ts";
import { streamedForm } from "../support/media.ts";
import { peakGrowth } from "../support/memory.ts";
import { startVision } from "./vision-world.ts";

const BYTES = Number(process.env.BYTES ?? 2_000_000_000);
const WARM_UP_BYTES = 20_000_000;

const { workers, stop } = await startVision();
const base = workers.urls.vision + API;
let authorization = "";

async function post(path: string, body: object): Promise<Record<string, string>> {
  const response = await fetch(base + path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: authorization },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return (await response.json()) as Record<string, string>;
}

async function upload(projectId: string, bytes: number): Promise<number> {
  const { chunks, headers } = streamedForm(projectId, bytes);
  const started = performance.now();
  const response = await fetch(`${base}/upload`, {
    method: "POST",
    headers: { ...headers, Authorization: authorization },
    body: ReadableStream.from(chunks()),
    duplex: "half",
  } as RequestInit);
  if (response.status !== 201) throw new Error(`upload answered ${response.status}`);
  return bytes / 1e6 / ((performance.now() - started) / 1e3);
}

try {
  const account = { email: "bench@example.com", password: "a password of the bench" };
  const tokens = await post("/auth/register", { ...account, display_name: "bench" });
  authorization = `Bearer ${tokens.access_token}`;
  const { project_id = "" } = await post("/projects", { name: "bench" });
  await upload(project_id, WARM_UP_BYTES);
  await upload(project_id, WARM_UP_BYTES);
  let rate = 0;
  const growth = await peakGrowth(async () => {
    rate = await upload(project_id, BYTES);
  });
  const lines = [
    `${cpus()[0]?.model}, ${availableParallelism()} cores`,
    `upload of ${BYTES / 1e6} MB: ${rate.toFixed(0)} MB/s`,
    `workerd above idle, its local object store included: ${(growth / 1e6).toFixed(0)} MB at most`,
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
} finally {
  await stop();
}
