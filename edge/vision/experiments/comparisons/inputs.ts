// What a run of a comparison is asked: as a JSON body, or as a form with a file. Of a form what
// says whose it is comes before the file, which is stored as it comes.

import { Failure } from "../../../../shared/errors.ts";
import { invalidRequest, issuesOf } from "../../../http/issues.ts";
import { meantName } from "../../../http/unknown-fields.ts";
import { allow, type Caller, workspaceFor, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { findJob } from "../../labeling/jobs/jobs.ts";
import { type FormFile, formParts } from "../../media/uploads/form.ts";
import {
  IMAGE,
  type MediaKind,
  VIDEO_HEAD_BYTES,
  videoType,
} from "../../media/uploads/media-types.ts";
import { tooLarge } from "../../media/uploads/object-writer.ts";
import { findVideo } from "../../media/videos/videos.ts";
import { IMAGE_BYTES_MAX } from "../../serving/predict/image-requests.ts";
import { type StoredFile, storeFile } from "../../serving/predict/predictions.ts";
import { CLIP_BYTES_MAX } from "../../serving/predict/routes.ts";
import { offeringNodes } from "../../tasks/nodes/nodes.ts";
import { source } from "../../tasks/objects.ts";
import { RunBody, settingsOf } from "./bodies.ts";
import { type SideModel, sideModels } from "./compared-models.ts";
import { findComparison } from "./comparisons.ts";
import type { ComparisonSettings, SessionInput } from "./records.ts";
import { keysOf, type SessionFootage } from "./sessions.ts";
import { datasetOf, findDataset, writeReviewed } from "./truth.ts";

/** How a run compares, and whose it is. */
export interface Configuration {
  workspaceId: string;
  comparisonId: string | null;
  settings: ComparisonSettings;
  models: [SideModel, SideModel];
}

/** A file that a form brought, in the store. */
interface InputFile extends StoredFile {
  filename: string;
  isImage: boolean;
}

/** A request for a run, as far as it was read. */
export interface RunRequest {
  body: RunBody;
  configuration: Configuration;
  file: InputFile | null;
}

const SOURCES = ["video_id", "job_id", "export_id"] as const;
const FIELD_NAMES = Object.keys(RunBody.shape);

const invalid = (detail: string) => new Failure("invalid_request", detail);

/**
 * How a run compares. Fails as `findComparison` and `sideModels` do, with `forbidden` where the
 * caller's role is too small, and with `no_node` where no node compares.
 */
async function configurationOf(
  { database }: Parts,
  caller: Caller,
  { comparison_id, configuration, workspace_id }: Partial<RunBody>,
): Promise<Configuration> {
  if ((comparison_id === undefined) === (configuration === undefined)) {
    throw invalid("comparison_id: give either that or a configuration");
  }
  const made = await (async () => {
    if (comparison_id !== undefined) {
      const row = await findComparison(database, workspacesOf(caller), comparison_id);
      allow(caller, row.workspaceId, "annotator");
      const { workspaceId, comparisonId, settings } = row;
      if (workspace_id !== undefined && workspace_id !== workspaceId) {
        throw new Failure("not_found", "no such comparison in your workspaces");
      }
      return { workspaceId, comparisonId, settings };
    }
    const workspaceId = workspaceFor(caller, workspace_id, "annotator");
    const settings = settingsOf(configuration as NonNullable<RunBody["configuration"]>);
    return { workspaceId, comparisonId: null, settings };
  })();
  const { workspaceId, settings } = made;
  const models = await sideModels(database, workspaceId, settings);
  if ((await offeringNodes(database, { kind: "comparison", workspaceId })) === 0) {
    throw new Failure("no_node", "no GPU node that compares models is there");
  }
  return { ...made, models };
}

/** A run as a JSON body asks for it. */
export async function readBody(parts: Parts, caller: Caller, body: RunBody): Promise<RunRequest> {
  checkSource(body, null);
  return { body, configuration: await configurationOf(parts, caller, body), file: null };
}

/** A run as a form asks for it. Whatever fails, no object is left behind. */
export async function readForm(
  parts: Parts,
  caller: Caller,
  request: Request,
): Promise<RunRequest> {
  const given: Record<string, string> = {};
  const taken: { configuration?: Configuration; file?: InputFile } = {};
  try {
    const contentType = request.headers.get("Content-Type") ?? undefined;
    for await (const part of formParts(request.body, contentType)) {
      if (part.kind === "field") {
        if (!FIELD_NAMES.includes(part.name)) throw unknownField(part.name);
        if (part.name in given) throw invalid(`${part.name}: given twice`);
        if (taken.file && HEAD.includes(part.name)) {
          throw invalid(`${part.name}: must come before the file`);
        }
        given[part.name] = part.value;
        continue;
      }
      if (part.name !== "file") throw unknownField(part.name);
      if (taken.file) throw invalid("file: only one is taken");
      taken.configuration = await configurationOf(parts, caller, parsed(given));
      taken.file = await store(parts, taken.configuration.workspaceId, part);
    }
    const body = parsed(given);
    checkSource(body, taken.file ?? null);
    const configuration = taken.configuration ?? (await configurationOf(parts, caller, body));
    return { body, configuration, file: taken.file ?? null };
  } catch (thrown) {
    if (taken.file) await parts.bucket.delete(taken.file.key);
    throw thrown;
  }
}

/** Fields that say whose a run is. */
const HEAD = ["comparison_id", "configuration", "workspace_id"];

function parsed(given: Readonly<Record<string, string>>): RunBody {
  const read = RunBody.safeParse(given);
  if (read.success) return read.data;
  throw invalidRequest(issuesOf(read.error));
}

function unknownField(name: string): Failure {
  const known = ["file", ...FIELD_NAMES];
  const meant = meantName(name, known);
  const advice = meant ? `did you mean ${meant}?` : `this form knows ${known.join(", ")}`;
  return invalid(`${name.slice(0, 64)}: unknown field; ${advice}`);
}

/** Fails unless a run has exactly one thing to look at. */
function checkSource(body: RunBody, file: InputFile | null): void {
  const named = SOURCES.filter((name) => body[name] !== undefined);
  const all = file ? ["file", ...named] : named;
  if (all.length !== 1) {
    const which = all.length === 0 ? "none is there" : `${all.join(" and ")} are there`;
    throw invalid(`file: give one of file, ${SOURCES.join(", ")}; ${which}`);
  }
  if (body.split !== undefined && body.export_id === undefined) {
    throw invalid("split: is of a dataset; give it with export_id");
  }
  if (body.fps !== undefined && (body.job_id ?? body.export_id) !== undefined) {
    throw invalid("fps: is of a video; a job and a dataset have frames of their own");
  }
}

/** Stores a file under a key of its own, as far as it is an image or a video. */
async function store(
  parts: Parts,
  workspaceId: string,
  { filename, chunks }: FormFile,
): Promise<InputFile> {
  let isImage = false;
  const kind: MediaKind = {
    source: "upload",
    headBytes: Math.max(IMAGE.headBytes, VIDEO_HEAD_BYTES),
    typeOf: (head) => {
      const type = videoType(head);
      isImage = type === null;
      return type ?? imageType(head);
    },
  };
  const bytesMax = Math.min(CLIP_BYTES_MAX, parts.limits.uploadBytesMax);
  const stored = await storeFile(parts, chunks, { workspaceId, kind, bytesMax });
  if (isImage && stored.bytes > IMAGE_BYTES_MAX) {
    await parts.bucket.delete(stored.key);
    throw tooLarge(IMAGE_BYTES_MAX);
  }
  return { ...stored, filename, isImage };
}

function imageType(head: Uint8Array): string {
  try {
    return IMAGE.typeOf(head);
  } catch (thrown) {
    if (!(thrown instanceof Failure && thrown.code === "unsupported_media")) throw thrown;
    const kinds = "JPEG, PNG, WebP, MP4, MOV, MKV, WebM or AVI";
    throw new Failure("unsupported_media", `the file is no ${kinds}`, { cause: thrown });
  }
}

/** What a run looks at: for people, and how its task gets it. */
export interface RunInput {
  input: SessionInput;
  footage: () => Promise<SessionFootage>;
}

const NOTHING = { filename: null, video_id: null, job_id: null, export_id: null, split: null };

/**
 * What a run looks at. Fails with `not_found` for what is not of its workspace, and with
 * `state_conflict` for what cannot be looked at yet; `footage` of a job may fail so too.
 */
export async function inputOf(
  parts: Parts,
  sessionId: string,
  { body, configuration: { workspaceId }, file }: RunRequest,
): Promise<RunInput> {
  const { database } = parts;
  const { fps = null, frames_max } = body;
  const shared = { video: null, dataset: null, video_id: null, filename: "", fps, frames_max };
  if (file) {
    const { key, bytes, filename, isImage } = file;
    return {
      input: { ...NOTHING, kind: isImage ? "image" : "video", filename },
      footage: async () => ({ ...shared, split: "all", video: source(key, bytes), filename }),
    };
  }
  if (body.video_id !== undefined) {
    const video = await findVideo(database, [workspaceId], body.video_id);
    if (video.state !== "ready") {
      throw new Failure("state_conflict", `the video cannot be looked at: it is ${video.state}`);
    }
    const { videoId: video_id, filename, storageKey, bytes, contentType } = video;
    const kind = contentType.startsWith("image/") ? "image" : "video";
    const media = { ...shared, split: "all" as const, video_id, filename };
    return {
      input: { ...NOTHING, kind, filename, video_id },
      footage: async () => ({ ...media, video: source(storageKey, bytes) }),
    };
  }
  if (body.job_id !== undefined) {
    const job = await findJob(database, [workspaceId], body.job_id);
    const { manifest } = keysOf(workspaceId, sessionId);
    return {
      input: { ...NOTHING, kind: "job", job_id: job.id },
      footage: async () => {
        const dataset = await writeReviewed(parts, job, manifest);
        return { ...shared, split: "all", dataset };
      },
    };
  }
  const { split = "val", export_id = "" } = body;
  const dataset = await datasetOf(parts, await findDataset(database, workspaceId, export_id));
  return {
    input: { ...NOTHING, kind: "export", export_id, split },
    footage: async () => ({ ...shared, split, dataset }),
  };
}
