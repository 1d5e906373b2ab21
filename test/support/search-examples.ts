// What examples of suggestions and embeddings need to be there before.

import { sql } from "drizzle-orm";
import { EXAMPLES } from "../../edge/vision/description.ts";
import type { EmbedResult } from "../../shared/tasks/embed-task.ts";
import type { ClaimedTask } from "../../shared/tasks/node-protocol.ts";
import { TASK_KINDS } from "../../shared/tasks/tasks.ts";
import type { Suggestion } from "../../shared/wire/suggestions.ts";
import type { Video } from "../../shared/wire/vision.ts";
import type { Preparation } from "./examples.ts";
import { newProject, type Person, uploadVideo } from "./scripted-node.ts";
import type { World } from "./world.ts";

const vectorOf = (frame: number) =>
  Buffer.from(Int8Array.of(127 - frame, frame).buffer).toString("base64");

/** What a node makes of frames: a vector that turns with the index, and less and less doubt. */
export function embedded(task: ClaimedTask): EmbedResult & Record<string, unknown> {
  const { videos } = TASK_KINDS.embed.payload.parse(task.payload);
  const frames = videos.flatMap(({ video_id, embed, score }) =>
    [...new Set([...embed, ...score])].map((frame_index) => ({
      video_id,
      frame_index,
      vector: embed.includes(frame_index) ? vectorOf(frame_index) : null,
      entropies: score.includes(frame_index) ? { person: 1 / (1 + frame_index) } : null,
    })),
  );
  return { frames, unreadable: [] };
}

/** Preparations by operation. */
export function searchExamples(
  parts: () => { world: World; admin: Person; base: Record<string, string> },
): Record<string, () => Promise<Preparation>> {
  const example = (name: string) => String(EXAMPLES[name]);
  const until = async <Answer>(ask: () => Promise<Answer>, isDone: (answer: Answer) => boolean) => {
    for (;;) {
      const answer = await ask();
      if (isDone(answer)) return answer;
      await new Promise((next) => setTimeout(next, 20));
    }
  };
  /** A project with a clip; its id. */
  const filmed = async (): Promise<string> => {
    const { admin } = parts();
    const { project_id } = await newProject(admin, "unlabeled");
    const { video_id } = await uploadVideo(admin, project_id, "crossing.mp4");
    const video = () => admin.ok<Video>("GET", `/videos/${video_id}`);
    await until(video, ({ status }) => status === "ready");
    return project_id;
  };
  const suggested = async (): Promise<Preparation> => {
    const { admin } = parts();
    const project_id = await filmed();
    const path = `/projects/${project_id}/suggestions`;
    const made = await admin.ok<Suggestion>("POST", path, EXAMPLES["suggestFrames.body"]);
    const suggestion = () => admin.ok<Suggestion>("GET", `/suggestions/${made.suggestion_id}`);
    await until(suggestion, ({ status }) => status === "completed");
    const { suggestion_id } = made;
    return {
      replaced: { [example("project_id")]: project_id, [example("suggestion_id")]: suggestion_id },
    };
  };
  return {
    suggestFrames: async () => ({ replaced: { [example("project_id")]: await filmed() } }),
    listSuggestions: suggested,
    getSuggestion: suggested,
    deleteSuggestion: suggested,
    embedFrames: async () => ({ replaced: { [example("project_id")]: await filmed() } }),
    getEmbeddings: async () => ({ replaced: { [example("project_id")]: await filmed() } }),
    similarFrames: async () => {
      const { world, base } = parts();
      const vectors = [0, 1, 2].map((frame) => ({ frame, vector: vectorOf(frame) }));
      await world.visionDatabase.execute(sql`
        INSERT INTO frame_embedding (video_id, frame_index, segmenter, vector)
        SELECT ${base[example("video_id")]}::uuid, frame, 'scripted', decode(vector, 'base64')
          FROM jsonb_to_recordset(${JSON.stringify(vectors)}::jsonb) v(frame int, vector text)`);
      return {};
    },
  };
}
