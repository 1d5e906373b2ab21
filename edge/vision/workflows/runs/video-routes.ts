// Runs over the frames of a clip: asked for, looked at under their id, and canceled.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import { PREDICT_FRAMES_MAX } from "../../../../shared/wire/serving.ts";
import { segmentersOf } from "../../../../shared/workflow/blocks/model-blocks.ts";
import { headers } from "../../../http/description.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf, workspaceFor, workspacesOf } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import type { FormField, FormFile } from "../../media/uploads/form.ts";
import { framesWished } from "../../serving/predict/clip-frames.ts";
import { answerClip, enqueueClip } from "../../serving/predict/clips.ts";
import { openShare } from "../../serving/predict/held-bytes.ts";
import { receiveFile } from "../../serving/predict/predictions.ts";
import { CLIP, CLIP_BYTES_MAX } from "../../serving/predict/routes.ts";
import { WorkflowSlug } from "../definitions/bodies.ts";
import { type AskedRun, readyRun } from "./asked-runs.ts";
import { clipQuery, dryRunQuery, FORMS, VideoRun, workspaceQuery } from "./bodies.ts";
import { videoRunEnded } from "./ended.ts";
import { storeImages } from "./inputs.ts";
import { imagesOf, requireWorkflowNode } from "./node-runs.ts";
import { askedAdHoc, askedOfDeployed, deployedFor, inputsIn } from "./requests.ts";
import { RUN_ERRORS } from "./routes.ts";
import type { ServedRun } from "./runs.ts";
import {
  cancelVideoRun,
  checkAnnotated,
  clipTask,
  findVideoRun,
  imageInput,
  isOver,
} from "./video-runs.ts";

const tag = "Workflows";
const FIELDS_BYTES_MAX = 12 * 1024 * 1024;
/** Bytes of a definition and some values: without room for them, the clip is not waited for. */
const FIELDS_BYTES_USUAL = 64 * 1024;
const FORM_LIMITS = { fieldSize: FIELDS_BYTES_MAX, fields: 10, files: 1 };
const runId = z.object({ run_id: z.uuid() });

const responses = {
  200: json("the frames with their outputs", VideoRun),
  202: json("a node is at it, or will be", VideoRun, headers("Location")),
};

const HOW =
  "multipart/form-data with `file`: MP4, MOV, MKV, WebM or AVI, at most 1 GiB, and `inputs` as JSON " +
  "for the other inputs. Runs on every frame, or on those that `fps` names; a clip of more than 3,000 " +
  "is 413 `too_many_frames` unless `frames_max` cuts it. The steps see one frame after another, and remember what was before: " +
  "trackers, counters and limits of time go by the time of the frames. Answered with 202 and the " +
  "`run_id`, for `GET /workflows/runs/{run_id}`, unless it ends within `wait_seconds`. Images of " +
  "outputs are left out, and at most 100 effects are performed, once all has ended well. The file is " +
  "deleted when the run ended; its result is kept for a day. With `annotated_output` the images of an " +
  "output come as `annotated_video_url`: an MP4 of the frames that were run, at their true times and " +
  "without sound. It has the sides of its first image, and images of other sides are scaled into them, " +
  "with black around. Of a run that failed it has the frames before, of a canceled one there is none. " +
  "It is kept for a day, counts towards the storage, and may have 1 GiB.";

const formBody = <Schema extends object>(schema: Schema) => ({
  required: true,
  content: { "multipart/form-data": { schema } },
});

/** Fields of a clip's form, by name. */
type ClipFields = Readonly<Record<string, string>>;

type ClipQuery = z.output<z.ZodObject<typeof clipQuery & typeof dryRunQuery>>;

function wishOf(fields: ClipFields, { dry_run }: ClipQuery) {
  const definition = fields.definition === undefined ? undefined : jsonOf(fields, "definition");
  const given = inputsIn(fields.inputs === undefined ? {} : jsonOf(fields, "inputs"));
  return { definition, given, dryRun: dry_run === "true" };
}

function jsonOf(fields: ClipFields, name: string): unknown {
  try {
    return JSON.parse(fields[name] ?? "");
  } catch {
    throw new Failure("invalid_request", `${name}: must be JSON`);
  }
}

/** A run over a clip that a request brings. */
interface ClipRun {
  workspaceId: string;
  query: ClipQuery;
  served: ServedRun | null;
  /** Names of fields that the form may have. */
  fields: readonly string[];
  /** The run that a form's fields ask for. */
  askedBy(fields: ClipFields): Promise<AskedRun>;
}

/** Stores a clip and enqueues its run; returns its id. */
async function startClip(context: Context, clip: ClipRun): Promise<string> {
  const parts = context.get("service") as Parts;
  const { workspaceId, query, served } = clip;
  const need = { kind: "workflow_video" as const, workspaceId };
  await requireWorkflowNode(parts, { ...need, segmenters: [] });
  const share = openShare(parts.clock, FIELDS_BYTES_USUAL);
  const fields: Record<string, string> = {};
  const listen = (part: FormField | FormFile) => {
    if (part.kind === "file" || !clip.fields.includes(part.name)) {
      const known = ["file", ...clip.fields].join(", ");
      const detail = `${part.name.slice(0, 64)}: unknown field; this form knows ${known}`;
      throw new Failure("invalid_request", detail);
    }
    share.grow(part.value.length);
    fields[part.name] = part.value;
  };
  const others = { listen, limits: FORM_LIMITS, bytesMax: FIELDS_BYTES_MAX };
  const bytesMax = Math.min(CLIP_BYTES_MAX, parts.limits.uploadBytesMax);
  const work = async () => {
    const rules = { workspaceId, kind: CLIP, bytesMax, others };
    const received = await receiveFile(parts, context.req.raw, rules);
    return enqueueClip(parts, received, async () => {
      const asked = await clip.askedBy(fields);
      const { plan, given } = asked;
      await requireWorkflowNode(parts, { ...need, segmenters: segmentersOf(plan) });
      const frames = imageInput(plan, given, query.frames_input);
      checkAnnotated(plan, query.annotated_output);
      const inputs = plan.inputs.filter(({ name }) => name !== frames);
      const run = await readyRun(parts, { ...asked, plan: { ...plan, inputs } });
      const images = imagesOf(run).map(([, image]) => image);
      return clipTask(run, {
        clip: received,
        frames,
        images: await storeImages(parts, workspaceId, images),
        wish: framesWished(query, PREDICT_FRAMES_MAX),
        annotated: query.annotated_output,
        served,
      });
    });
  };
  return toItsEnd(
    context,
    work().finally(() => share.free()),
  );
}

/** Answers with the record of a run, once it ended or as it stands when the wait is over. */
function answered(context: Context, id: string, waitSeconds: number) {
  const parts = context.get("service") as Parts;
  const workspaces = workspacesOf(callerOf(context));
  return answerClip(context, "/workflows/runs", {
    predictionId: id,
    waitSeconds,
    find: () => findVideoRun(parts, workspaces, id),
    isOver: () => isOver(parts, id),
  });
}

/** Routes of runs over clips. */
export const videoRunRoutes: readonly Route[] = [
  route(
    {
      call: "POST /workflows/run/video",
      operationId: "runWorkflowOnVideo",
      tag,
      summary: "Run a definition on the frames of a video",
      description:
        "Needs the role annotator, and engineer where a sink of it sends or stores something and it is " +
        `no dry run. With \`definition\` as JSON. ${HOW}`,
      who: user,
      query: z.object({ ...workspaceQuery, ...dryRunQuery, ...clipQuery }),
      body: formBody(FORMS.runVideo),
      answers: responses,
      errors: ["bad_body", "not_found", ...RUN_ERRORS, "too_many_frames"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const query = context.req.valid("query");
      const workspaceId = workspaceFor(caller, query.workspace_id, "annotator");
      const askedBy = async (fields: ClipFields): Promise<AskedRun> =>
        askedAdHoc(parts, caller, { ...wishOf(fields, query), workspaceId });
      const fields = ["definition", "inputs"];
      const wish = { workspaceId, query, served: null, fields, askedBy };
      return answered(context, await startClip(context, wish), query.wait_seconds);
    },
  ),
  route(
    {
      call: "POST /workflows/serve/{slug}/video",
      operationId: "serveWorkflowOnVideo",
      tag,
      summary: "Run a deployed workflow on the frames of a video",
      description: `Needs the role annotator; engineer where the run itself names a secret or a project. ${HOW}`,
      who: user,
      params: z.object({ slug: WorkflowSlug }),
      query: z.object({ ...workspaceQuery, ...dryRunQuery, ...clipQuery }),
      body: formBody(FORMS.serveVideo),
      answers: responses,
      errors: ["bad_body", "state_conflict", ...RUN_ERRORS, "too_many_frames"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const query = context.req.valid("query");
      const named = { ...context.req.valid("param"), workspace_id: query.workspace_id };
      const deployed = await deployedFor(parts, caller, named);
      const { workspaceId } = deployed;
      const askedBy = async (fields: ClipFields): Promise<AskedRun> => {
        const { given, dryRun } = wishOf(fields, query);
        return askedOfDeployed(parts, caller, { deployed, given, dryRun });
      };
      const served = { deployed, stream: null };
      const wish = { workspaceId, query, served, fields: ["inputs"], askedBy };
      return answered(context, await startClip(context, wish), query.wait_seconds);
    },
  ),
  route(
    {
      call: "GET /workflows/runs/{run_id}",
      operationId: "readWorkflowRun",
      tag,
      summary: "How a run on a video stands, and its result",
      description:
        "Of runs on videos; those on images are answered at once. It is `running` until what it asks " +
        "for outside was done, too. Where a step failed, the run is `failed` with the frames before. " +
        "Kept for a day.",
      who: user,
      params: runId,
      answers: { 200: json("the run", VideoRun) },
    },
    async (context) => {
      const { run_id } = context.req.valid("param");
      const workspaces = workspacesOf(callerOf(context));
      return context.json(await findVideoRun(context.var.service, workspaces, run_id), 200);
    },
  ),
  route(
    {
      call: "DELETE /workflows/runs/{run_id}",
      operationId: "cancelWorkflowRun",
      tag,
      summary: "Cancel a run on a video",
      description:
        "Needs the role annotator. A node stops within a few seconds; the frames that it did stay. " +
        "Nothing is done outside for a canceled run. One whose frames were all done before stays as " +
        "it is, and so does what it asks for outside.",
      who: user,
      params: runId,
      answers: { 200: json("the run as it stands", VideoRun) },
    },
    async (context) => {
      const parts = context.var.service;
      const { run_id } = context.req.valid("param");
      const caller = callerOf(context);
      const task = await cancelVideoRun(parts, caller, run_id);
      // No node will tell of its end.
      if (task) await videoRunEnded(parts, task);
      return context.json(await findVideoRun(parts, workspacesOf(caller), run_id), 200);
    },
  ),
];
