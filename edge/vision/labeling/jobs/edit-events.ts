// The live topic of a job's annotations, which outlives the job's rounds: after each commit that
// changed some, listeners are told up to which number, and what is cheap to tell.

import type { EditEvent } from "../../../../shared/wire/edits.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { publish } from "../../tasks/progress/progress.ts";

/** Where a job's edits are told. */
export const editsTopicOf = (jobId: string) => `edits:${jobId}`;

/** Characters of an event with annotations; beyond, listeners read them. */
const EVENT_CHARACTERS_MAX = 100_000;

type EventParts = Pick<Parts, "database" | "topics" | "log">;

/** By database, how its edits are told: no way to edit can forget it. */
const tellers = new WeakMap<Database, EventParts>();

/** Has edits that are made in a database from now on told to the listeners of their jobs. */
export function tellEditsOf<One extends EventParts>(parts: One): One {
  tellers.set(parts.database, parts);
  return parts;
}

/** Tells the listeners of a job of a commit, unless it changed nothing. */
export async function tellEdited(database: Database, jobId: string, data: EditEvent) {
  const parts = tellers.get(database);
  if (!parts || data.edits_seq === data.after_seq) return;
  const { rows, deleted, ...brief } = data;
  const isLong = JSON.stringify(data).length > EVENT_CHARACTERS_MAX;
  await publish(parts, editsTopicOf(jobId), [{ type: "edit", data: isLong ? brief : data }]);
}
