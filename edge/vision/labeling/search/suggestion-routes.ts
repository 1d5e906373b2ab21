// What to label next, over HTTP.

import { z } from "@hono/zod-openapi";
import { Suggestion } from "../../../../shared/wire/suggestions.ts";
import { MODEL_NAMES } from "../../../../shared/wire/training.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { findProjectFor } from "../../media/projects/projects.ts";
import { modelCalled } from "../../models/registry.ts";
import { stretch, videoIds } from "../jobs/bodies.ts";
import { segmenterOf } from "./similar.ts";
import {
  beginSuggestion,
  deleteSuggestion,
  findSuggestion,
  listSuggestions,
  suggestionRecord,
} from "./suggestions.ts";

const tag = "Labeling";
const BUDGET_MAX = 500;
const FPS = 1;

const SuggestionBody = z.strictObject({
  budget: z.int().min(1).max(BUDGET_MAX).meta({ description: "frames to choose" }),
  model: z
    .union([z.uuid(), z.enum(MODEL_NAMES)])
    .optional()
    .meta({
      description:
        "a model of the registry, by its id or a name: frames on which it is unsure come first. " +
        "Without one, frames are chosen to differ from each other and from what is labeled",
    }),
  segmenter: name().max(200).optional().meta({
    description: "whose encoder tells how frames differ; a node's default when omitted",
  }),
  video_ids: videoIds.optional().meta({ description: "all of the project when omitted" }),
  ...stretch,
  fps: stretch.fps.unwrap().default(FPS).meta({
    description: "frames a second of each clip that may be chosen, by their true times",
  }),
});
const suggestionId = z.object({ suggestion_id: z.uuid() });
const projectId = z.object({ project_id: z.uuid() });

/** Routes of suggestions. */
export const suggestionRoutes: readonly Route[] = [
  route(
    {
      call: "POST /projects/{project_id}/suggestions",
      operationId: "suggestFrames",
      tag,
      summary: "Which frames to label next",
      description:
        "Beyond the contract; for engineers. Nodes look at the unlabeled images and frames of a " +
        "project: those that nobody drew on, imported labels for, judged or marked. With a model, the " +
        "four times `budget` frames on which it is most unsure are kept; of these each next one is the " +
        "farthest from what is labeled and chosen, by the embeddings of the segmenter's encoder. " +
        "`POST /jobs` takes the `frame_id`s of the result.",
      who: user,
      params: projectId,
      body: jsonBody(SuggestionBody),
      answers: { 202: json("nodes look at the frames", Suggestion) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { project_id } = context.req.valid("param");
      const project = await findProjectFor(parts, caller, project_id, "engineer");
      const { workspaceId } = project;
      const { budget, model: called, segmenter, video_ids, ...chosen } = context.req.valid("json");
      const model = called ? await modelCalled(parts.database, workspaceId, called) : null;
      const id = await beginSuggestion(parts, {
        project,
        budget,
        modelId: model?.modelId ?? null,
        segmenter: await segmenterOf(parts.database, workspaceId, segmenter),
        videoIds: video_ids,
        stretch: chosen,
        createdBy: caller.accountId,
      });
      const row = await findSuggestion(parts.database, [workspaceId], id);
      return context.json(await suggestionRecord(parts.database, row), 202);
    },
  ),
  route(
    {
      call: "GET /projects/{project_id}/suggestions",
      operationId: "listSuggestions",
      tag,
      summary: "A project's suggestions, newest first",
      description: "Beyond the contract. Without their frames.",
      who: user,
      params: projectId,
      query: z.object(pageQuery(500)),
      answers: { 200: json("the suggestions", z.array(Suggestion.omit({ frames: true }))) },
      errors: ["not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const { project_id } = context.req.valid("param");
      await findProjectFor(parts, callerOf(context), project_id);
      const page = context.req.valid("query");
      return context.json(await listSuggestions(parts.database, project_id, page), 200);
    },
  ),
  route(
    {
      call: "GET /suggestions/{suggestion_id}",
      operationId: "getSuggestion",
      tag,
      summary: "A suggestion, and its frames once it is completed",
      description: "Beyond the contract.",
      who: user,
      params: suggestionId,
      answers: { 200: json("the suggestion", Suggestion) },
      errors: ["not_found"],
    },
    async (context) => {
      const { database } = context.var.service;
      const { suggestion_id } = context.req.valid("param");
      const row = await findSuggestion(database, workspacesOf(callerOf(context)), suggestion_id);
      return context.json(await suggestionRecord(database, row), 200);
    },
  ),
  route(
    {
      call: "DELETE /suggestions/{suggestion_id}",
      operationId: "deleteSuggestion",
      tag,
      summary: "Forget a suggestion, or stop one that runs",
      description: "Beyond the contract; for engineers. Embeddings that were made stay.",
      who: user,
      params: suggestionId,
      answers: { 204: { description: "it is gone" } },
      errors: ["not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { suggestion_id } = context.req.valid("param");
      const row = await findSuggestion(parts.database, workspacesOf(caller), suggestion_id);
      allow(caller, row.workspaceId, "engineer");
      await deleteSuggestion(parts, row.id);
      return context.body(null, 204);
    },
  ),
];
