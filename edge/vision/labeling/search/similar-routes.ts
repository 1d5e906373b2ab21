// Embeddings and images like one, over HTTP.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import { Embeddings, SimilarFrames } from "../../../../shared/wire/suggestions.ts";
import { FrameId } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { callerOf, workspacesOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { findProjectFor } from "../../media/projects/projects.ts";
import { framesOf } from "../jobs/frame-references.ts";
import { embeddingsOf, embedProject, segmenterOf, similarFrames } from "./similar.ts";

const tag = "Labeling";
const SIMILAR_MAX = 500;
const SIMILAR = 20;

const projectId = z.object({ project_id: z.uuid() });
const segmenter = name().max(200).optional().meta({
  description: "whose encoder is meant; a node's default when omitted",
});

/** Routes of embeddings. */
export const similarRoutes: readonly Route[] = [
  route(
    {
      call: "POST /projects/{project_id}/embeddings",
      operationId: "embedFrames",
      tag,
      summary: "Make the embeddings that a project's frames lack",
      description:
        "Beyond the contract; for annotators. Nodes embed the images of the project, the frames that " +
        "its jobs label or have added and those with tags, at most 20,000 in one request; labeling goes first.",
      who: user,
      params: projectId,
      body: jsonBody(z.strictObject({ segmenter })),
      answers: { 202: json("how many frames have one", Embeddings) },
      errors: ["not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const { project_id } = context.req.valid("param");
      const project = await findProjectFor(parts, callerOf(context), project_id, "annotator");
      const named = context.req.valid("json").segmenter;
      const meant = await segmenterOf(parts.database, project.workspaceId, named);
      return context.json(await embedProject(parts, project, meant), 202);
    },
  ),
  route(
    {
      call: "GET /projects/{project_id}/embeddings",
      operationId: "getEmbeddings",
      tag,
      summary: "How many of a project's frames have embeddings",
      description: "Beyond the contract.",
      who: user,
      params: projectId,
      query: z.object({ segmenter }),
      answers: { 200: json("how many frames have one", Embeddings) },
      errors: ["not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const { project_id } = context.req.valid("param");
      const project = await findProjectFor(parts, callerOf(context), project_id);
      const named = context.req.valid("query").segmenter;
      const meant = named ?? (await segmenterOf(parts.database, project.workspaceId, named));
      return context.json(await embeddingsOf(parts.database, project, meant), 200);
    },
  ),
  route(
    {
      call: "GET /frames/{frame_id}/similar",
      operationId: "similarFrames",
      tag,
      summary: "The frames of its project most like a frame",
      description:
        "Beyond the contract. Frames that have an embedding are compared: " +
        "`POST /projects/{project_id}/embeddings` makes them.",
      who: user,
      params: z.object({ frame_id: FrameId }),
      query: z.object({
        limit: whole(1, SIMILAR_MAX).default(SIMILAR),
        segmenter: segmenter.meta({
          description: "whose embeddings are compared; the newest of the frame when omitted",
        }),
      }),
      answers: { 200: json("the most like it first", SimilarFrames) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const workspaces = workspacesOf(callerOf(context));
      const { frame_id } = context.req.valid("param");
      const { video, frames } = await framesOf(parts, workspaces, [frame_id]);
      const query = context.req.valid("query");
      const [frame = 0] = frames;
      const alike = await similarFrames(parts.database, { video, frame }, query);
      return context.json(alike, 200);
    },
  ),
];
