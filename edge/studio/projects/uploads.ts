// Files on their way into a project. Videos go straight into the store in parts, of which none that
// arrived is sent again: after a lost connection by itself, after a reload once the same file is
// chosen again. Still images go through the service.

import { signal } from "@preact/signals";
import type { Video, VideoBatch } from "../../../shared/wire/vision.ts";
import { ApiError, access, addressOf, apiErrorOf, call, errorOf, formHeader } from "../kit/api.ts";

/** A file and where it stood in what was dropped, such as `cam1/0001.jpg`. */
export interface ChosenFile {
  file: File;
  name: string;
}

/** A file on its way. */
export interface Upload {
  id: number;
  projectId: string;
  name: string;
  bytes: number;
  sent: number;
  state: "waiting" | "sending" | "reconnecting" | "done" | "failed" | "dropped";
  error: ApiError | null;
}

/** A direct upload as the service tells it. */
interface DirectUpload {
  upload_id: string;
  status: "open" | "completed" | "aborted";
  part_bytes: number;
  part_count: number;
  parts: { part_number: number; etag: string }[];
  urls: { part_number: number; url: string }[];
}

const IMAGES = new Set(["image/jpeg", "image/png", "image/webp"]);
const AT_ONCE = 3;
const TRIES_MAX = 8;
const PAUSE_MS = 1_000;
const PAUSE_MS_MAX = 30_000;
/** A request is given up when for so long no byte left and no answer came. */
const STALLED_MS = 60_000;
const WATCH_MS = 5_000;

/** All files of this visit, in the order in which they were chosen. */
export const uploads = signal<readonly Upload[]>([]);
/** Rises when a file became a video, so that lists ask again. */
export const arrivals = signal(0);

const files = new Map<number, { file: File; abort: AbortController }>();
let nextId = 1;
let running = 0;

/** Begins to send files into a project. */
export function upload(projectId: string, chosen: readonly ChosenFile[]): void {
  const added = chosen.map(({ file, name }): Upload => {
    const id = nextId++;
    files.set(id, { file, abort: new AbortController() });
    const state = "waiting";
    return { id, projectId, name, bytes: file.size, sent: 0, state, error: null };
  });
  uploads.value = [...uploads.value, ...added];
  for (let slot = running; slot < AT_ONCE; slot++) void work();
}

/** Sends a file again that failed. */
export function retry({ id }: Upload): void {
  const held = files.get(id);
  if (!held) return;
  files.set(id, { file: held.file, abort: new AbortController() });
  change(id, { state: "waiting", error: null });
  if (running < AT_ONCE) void work();
}

/** Gives up a file that is on its way. */
export function drop({ id }: Upload): void {
  files.get(id)?.abort.abort();
  change(id, { state: "dropped" });
}

/** Takes what has ended out of the list. */
export function clearEnded(): void {
  uploads.value = uploads.value.filter(({ state }) => state !== "done" && state !== "dropped");
}

/** Whether anything is still on its way. */
export const isUploading = (): boolean =>
  uploads.value.some(({ state }) => ["waiting", "sending", "reconnecting"].includes(state));

function change(id: number, changes: Partial<Upload>): void {
  uploads.value = uploads.value.map((one) => (one.id === id ? { ...one, ...changes } : one));
}

/** Sends files one after the other until none waits. */
async function work(): Promise<void> {
  running++;
  try {
    for (;;) {
      const next = uploads.value.find(({ state }) => state === "waiting");
      const held = next && files.get(next.id);
      if (!next || !held) return;
      change(next.id, { state: "sending" });
      try {
        await sendFile(next, held.file, held.abort.signal);
        change(next.id, { state: "done", sent: next.bytes });
        files.delete(next.id);
        arrivals.value++;
      } catch (thrown) {
        if (held.abort.signal.aborted) continue;
        const error = apiErrorOf(thrown);
        change(next.id, { state: "failed", error });
      }
    }
  } finally {
    running--;
  }
}

const sendFile = (one: Upload, file: File, signal: AbortSignal): Promise<void> =>
  IMAGES.has(file.type) ? sendImage(one, file, signal) : sendParts(one, file, signal);

async function sendImage(one: Upload, file: File, signal: AbortSignal): Promise<void> {
  const body = new FormData();
  body.set("project_id", one.projectId);
  body.append("files", file, one.name);
  const batch = await withTries(one, signal, async () => {
    let hasLeft = false;
    try {
      const answer = await put(addressOf("/upload/images"), {
        method: "POST",
        body,
        headers: formHeader("POST"),
        signal,
        onSent: (sent) => {
          hasLeft = sent >= one.bytes;
          change(one.id, { sent: Math.min(sent, one.bytes) });
        },
      });
      return JSON.parse(await answer.text()) as VideoBatch; // The route's own shape.
    } catch (thrown) {
      if (thrown instanceof ApiError && thrown.status === 401) {
        await access.regain();
        throw new ApiError("The session was over.");
      }
      // Each image that arrives becomes a video: what may have arrived is not sent twice.
      if (!hasLeft || !isPassing(thrown)) throw thrown;
      const detail =
        "The connection was lost before the answer came. Look whether the image is there before " +
        "you send it again.";
      throw new ApiError(detail, { status: 409, code: "answer_lost" });
    }
  });
  const [refused] = batch.failed;
  if (refused) throw new ApiError(refused.detail, { status: 422, code: refused.code });
}

/** Names a file across visits: what an upload of it that was broken off is remembered by. */
const memoryKey = (projectId: string, name: string, file: File) =>
  `vantage-upload ${projectId} ${file.size} ${file.lastModified} ${name}`;

/** The upload of a file that was broken off before, or a new one. */
async function openUpload(one: Upload, file: File, signal: AbortSignal): Promise<DirectUpload> {
  const key = memoryKey(one.projectId, one.name, file);
  const before = localStorage.getItem(key);
  if (before) {
    const found = await call<DirectUpload>(`/uploads/${before}`, { signal }).catch(() => null);
    if (found?.status === "open") return found;
  }
  const body = { project_id: one.projectId, filename: one.name, bytes: file.size };
  const made = await call<DirectUpload>("/uploads", { method: "POST", body, signal });
  localStorage.setItem(key, made.upload_id);
  return made;
}

async function sendParts(one: Upload, file: File, signal: AbortSignal): Promise<void> {
  let state = await withTries(one, signal, () => openUpload(one, file, signal));
  const path = `/uploads/${state.upload_id}`;
  const sizeOf = (number: number) =>
    Math.min(state.part_bytes, file.size - (number - 1) * state.part_bytes);
  for (;;) {
    const arrived = state.parts.reduce((sum, part) => sum + sizeOf(part.part_number), 0);
    change(one.id, { sent: arrived, state: "sending" });
    const [next] = state.urls;
    if (!next) break;
    const { part_number: number } = next;
    const from = (number - 1) * state.part_bytes;
    state = await withTries(one, signal, async (tries) => {
      // Addresses are good for an hour: a later try asks for fresh ones.
      const asked = tries === 1 ? state : await call<DirectUpload>(path, { signal });
      const target = asked.urls.find((url) => url.part_number === number);
      if (!target) return asked;
      const answer = await put(target.url, {
        method: "PUT",
        body: file.slice(from, from + sizeOf(number)),
        signal,
        onSent: (sent) => change(one.id, { sent: arrived + sent }),
      });
      const etag = answer.headers.get("ETag") ?? "";
      const body = { parts: [{ part_number: number, etag }] };
      return call<DirectUpload>(`${path}/parts`, { method: "POST", body, signal });
    });
  }
  await withTries(one, signal, () =>
    call<Video>(`${path}/complete`, { method: "POST", body: {}, signal }),
  );
  localStorage.removeItem(memoryKey(one.projectId, one.name, file));
}

/** Whether a failure is one of the connection or of a service that is busy or down. */
const isPassing = (thrown: unknown): boolean =>
  thrown instanceof ApiError && ([0, 408, 429].includes(thrown.status) || thrown.status >= 500);

/** Tries again, later each time, as long as it is the connection or the service that fails. */
async function withTries<Result>(
  { id }: Upload,
  signal: AbortSignal,
  attempt: (tries: number) => Promise<Result>,
): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await attempt(tries);
    } catch (thrown) {
      if (!isPassing(thrown) || signal.aborted || tries >= TRIES_MAX) throw thrown;
      change(id, { state: "reconnecting" });
      const pause = Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** (tries - 1));
      await new Promise((done) => setTimeout(done, pause * (0.5 + Math.random() / 2)));
      signal.throwIfAborted();
      change(id, { state: "sending" });
    }
  }
}

interface PutRequest {
  method: "PUT" | "POST";
  body: Blob | FormData;
  headers?: Readonly<Record<string, string>>;
  signal: AbortSignal;
  /** Bytes of the body that have left so far. */
  onSent: (bytes: number) => void;
}

/** Sends a body and tells how much of it has left, which `fetch` cannot. */
function put(url: string, { method, body, headers = {}, signal, onSent }: PutRequest) {
  return new Promise<Response>((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    // A connection that died without a word is given up once nothing moves any more.
    let moved = performance.now();
    const watch = setInterval(() => {
      if (performance.now() - moved > STALLED_MS) request.abort();
    }, WATCH_MS);
    request.onloadend = () => clearInterval(watch);
    request.upload.onprogress = ({ loaded }) => {
      moved = performance.now();
      onSent(loaded);
    };
    request.onerror = () => reject(new ApiError("The connection was lost; this is tried again."));
    request.onabort = () =>
      reject(signal.aborted ? signal.reason : new ApiError("The connection stalled."));
    request.onload = () => {
      const { status, responseText } = request;
      const answer = new Response(status === 204 ? null : responseText, {
        status,
        headers: { ETag: request.getResponseHeader("ETag") ?? "" },
      });
      if (status < 400) resolve(answer);
      else errorOf(answer).then(reject, reject);
    };
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(body);
  });
}
