// A labeling job: how far it is, what it found by class, and what can be done with it.

import { useState } from "preact/hooks";
import type { Job, JobClass } from "../../../shared/wire/labeling.ts";
import type { Project } from "../../../shared/wire/vision.ts";
import { type ApiError, apiErrorOf, call } from "../kit/api.ts";
import { count } from "../kit/format.ts";
import { Top } from "../kit/page.tsx";
import { useResource } from "../kit/resource.ts";
import { HOME } from "../kit/router.ts";
import { may } from "../kit/session.ts";
import { Button, Empty, Icon, Progress, Shown } from "../kit/widgets.tsx";
import { aboutJob, progressText } from "./job-line.tsx";
import { isLive, useProgress } from "./live-job.ts";

/** The page of a job. */
export function Page({ parameters }: { parameters: Readonly<Record<string, string>> }) {
  const id = parameters.job ?? "";
  const job = useResource(`job ${id}`, (signal) => call<Job>(`/jobs/${id}`, { signal }));
  const projectId = job.data?.project_id;
  const project = useResource(`project ${projectId}`, (signal) =>
    projectId === undefined
      ? Promise.resolve(undefined)
      : call<Project>(`/projects/${projectId}`, { signal }),
  );
  const parent = project.data && {
    title: project.data.name,
    href: `${HOME}/p/${project.data.project_id}`,
  };
  return (
    <>
      <Top title={job.data ? job.data.name || aboutJob(job.data) : "Job"} parent={parent}>
        {job.data && may("engineer", project.data?.workspace_id) && (
          <Moves job={job.data} onMoved={job.reload} />
        )}
      </Top>
      <main tabIndex={-1}>
        <div class="column">
          <Shown of={job}>{(found) => <JobState job={found} onEnd={job.reload} />}</Shown>
        </div>
      </main>
    </>
  );
}

/** Stops a job that is at work, and resumes one that was stopped or failed. */
function Moves({ job, onMoved }: { job: Job; onMoved: () => void }) {
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const move = async (name: "stop" | "resume") => {
    setBusy(true);
    setError(null);
    try {
      await call(`/jobs/${job.job_id}/${name}`, { method: "POST" });
      onMoved();
    } catch (thrown) {
      setError(apiErrorOf(thrown));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      {error && (
        <span class="bad" role="alert">
          {error.message}
        </span>
      )}
      {isLive(job.status) && (
        <Button icon="square" disabled={isBusy} onClick={() => void move("stop")}>
          Stop
        </Button>
      )}
      {(job.status === "stopped" || job.status === "failed") && (
        <Button icon="play" disabled={isBusy} onClick={() => void move("resume")}>
          Resume
        </Button>
      )}
    </>
  );
}

function JobState({ job, onEnd }: { job: Job; onEnd: () => void }) {
  const progress = useProgress(job, onEnd);
  const classes = useResource(`classes ${job.job_id} ${job.status}`, (signal) =>
    call<JobClass[]>(`/jobs/${job.job_id}/classes`, { signal }),
  );
  return (
    <>
      {progress && (
        <section class="card job-progress" aria-label="Progress">
          <p role="status">{progressText(progress)}</p>
          <Progress value={progress.progress} label="Frames labeled" />
        </section>
      )}
      {job.failure && (
        <p class="note bad" role="alert">
          {job.failure}
        </p>
      )}
      {job.warnings.map((warning) => (
        <p class="note warn row" key={warning}>
          <Icon name="triangle-alert" /> {warning}
        </p>
      ))}
      <Shown of={classes} lines={3}>
        {(all) =>
          all.length > 0 ? (
            <table class="classes">
              <thead>
                <tr>
                  <th scope="col">Class</th>
                  <th scope="col">Boxes</th>
                </tr>
              </thead>
              <tbody>
                {all.map((one) => (
                  <tr key={one.class}>
                    <th scope="row">{one.class}</th>
                    <td>{count(one.annotations)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : (
            <Empty icon="tag" title="No class yet">
              <p>Classes come with the words of a job, with an import, or with the first box.</p>
            </Empty>
          )
        }
      </Shown>
    </>
  );
}
