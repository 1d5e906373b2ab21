// A job's progress, live: the numbers of `GET /status`, as its topic carries them.

import { useEffect, useState } from "preact/hooks";
import type { Job, JobProgress } from "../../../shared/wire/labeling.ts";
import { call } from "../kit/api.ts";
import { listen } from "../kit/live.ts";

/** Whether a job is at work, or waits for it. */
export const isLive = (status: Job["status"]): boolean =>
  status === "queued" || status === "running";

/** The progress of a job at work; undefined until it is known, and for a job that has ended. */
export function useProgress(
  { job_id: id, status }: Pick<Job, "job_id" | "status">,
  onEnd: () => void,
): JobProgress | undefined {
  const [progress, setProgress] = useState<JobProgress>();
  const live = isLive(status);
  useEffect(() => {
    if (!live) {
      setProgress(undefined);
      return;
    }
    const abort = new AbortController();
    // What the topic never told: a job whose node has not begun publishes nothing.
    call<JobProgress>(`/status/${id}`, { signal: abort.signal }).then(setProgress, () => {});
    const topic = listen({
      ticketPath: `/jobs/${id}/ticket`,
      onEvent: ({ type, data }) => {
        if (typeof data.frames_total === "number") {
          setProgress((before) => ({ ...before, ...data }) as JobProgress); // As `/status` has it.
        }
        if (type === "end") onEnd();
      },
    });
    return () => {
      abort.abort();
      topic.stop();
    };
  }, [id, live]);
  return progress;
}
