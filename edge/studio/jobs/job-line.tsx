// A labeling job as a line of a list, live while it is at work.

import { useState } from "preact/hooks";
import type { Job, JobProgress } from "../../../shared/wire/labeling.ts";
import { call } from "../kit/api.ts";
import { count, counted, duration, moment } from "../kit/format.ts";
import { HOME } from "../kit/router.ts";
import { Icon, Progress } from "../kit/widgets.tsx";
import { useProgress } from "./live-job.ts";

const STATES: Readonly<Record<Job["status"], string>> = {
  queued: "waits",
  running: "labels",
  completed: "done",
  failed: "failed",
  stopped: "stopped",
};
const KINDS: Readonly<Record<Job["kind"], string>> = {
  text: "by words",
  exemplar: "by examples",
  import: "imported",
  manual: "by hand",
};

/** What a job looks for, or how its boxes came about. */
export const aboutJob = ({ kind, prompts }: Job): string =>
  prompts.length > 0 ? prompts.join(", ") : KINDS[kind];

/** How far a job is, in words. */
export function progressText({ frames_done, frames_total, ...progress }: JobProgress): string {
  const frames = `${count(frames_done)} of ${counted(frames_total, "frame")}`;
  if (progress.waiting_for) return `${frames}; ${progress.waiting_for}`;
  const eta = progress.eta_seconds === null ? "" : `, about ${duration(progress.eta_seconds)} left`;
  return `${frames}${eta}`;
}

/** The line of a job. */
export function JobLine({ job: listed }: { job: Job }) {
  const [job, setJob] = useState(listed);
  const progress = useProgress(job, () => {
    call<Job>(`/jobs/${listed.job_id}`).then(setJob, () => {});
  });
  return (
    <li>
      <a class="card row" href={`${HOME}/j/${job.job_id}`}>
        <Icon name="grid-3x3" size={18} />
        <b class="name">{job.name || aboutJob(job)}</b>
        <span class="secondary about">{aboutJob(job)}</span>
        <span class="space" />
        {progress ? (
          <span class="progress-cell">
            <span class="secondary">{progressText(progress)}</span>
            <Progress value={progress.progress} label={`Progress of ${job.name}`} />
          </span>
        ) : (
          <span class={job.status === "failed" ? "bad" : "chip"}>{STATES[job.status]}</span>
        )}
        <time class="tertiary when" dateTime={job.created_at}>
          {moment(job.created_at)}
        </time>
      </a>
    </li>
  );
}
