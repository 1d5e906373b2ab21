// What a node reports of a label task while it is at it.

import type { Parts } from "../../base/parts.ts";
import { publish } from "../../tasks/progress/progress.ts";
import type { TaskHead } from "../../tasks/queue/queue.ts";
import { jobOfTask, topicOf } from "./jobs.ts";
import { beginJob } from "./rounds.ts";
import { liveData, statusOf } from "./status.ts";

/** A node reported how far a label task is. */
export async function labelReported(parts: Parts, task: TaskHead): Promise<void> {
  const job = await jobOfTask(parts.database, task);
  if (!job) return;
  const now = parts.clock();
  if (job.state === "queued" && (await beginJob(parts, job, now))) job.state = "running";
  const status = await statusOf(parts.database, job, now);
  await publish(parts, topicOf(job), [{ type: "batch", data: liveData(status) }]);
}
