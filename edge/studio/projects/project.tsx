// A project: its videos as a contact sheet, its jobs with their progress, and uploads by dropping
// files.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Job } from "../../../shared/wire/labeling.ts";
import type { Project, Video } from "../../../shared/wire/vision.ts";
import { JobLine } from "../jobs/job-line.tsx";
import { call } from "../kit/api.ts";
import { count, counted, duration } from "../kit/format.ts";
import { useKeys } from "../kit/keys.ts";
import { Top } from "../kit/page.tsx";
import { useResource } from "../kit/resource.ts";
import { go, HOME } from "../kit/router.ts";
import { may } from "../kit/session.ts";
import { Button, ButtonLink, Empty, Icon, Shown } from "../kit/widgets.tsx";
import { chosenFiles, droppedFiles } from "./dropped-files.ts";
import { UploadTray } from "./upload-tray.tsx";
import { arrivals, isUploading, upload } from "./uploads.ts";

/** Videos that nodes still read are looked at again so often. */
const PROBING_MS = 2_000;

/** The page of a project. */
export function Page({ parameters }: { parameters: Readonly<Record<string, string>> }) {
  const id = parameters.project ?? "";
  const project = useResource(`project ${id}`, (signal) =>
    call<Project>(`/projects/${id}`, { signal }),
  );
  const isEngineer = may("engineer", project.data?.workspace_id);
  const [isProbing, setProbing] = useState(false);
  const videos = useResource(
    `videos ${id} ${arrivals.value}`,
    (signal) => call<Video[]>(`/projects/${id}/videos`, { signal }),
    { everyMs: isProbing ? PROBING_MS : undefined },
  );
  const kept = useRef<Video[] | undefined>(undefined);
  kept.current = videos.data ?? kept.current;
  const isAnyProbing = videos.data?.some(({ status }) => status === "probing") ?? false;
  useEffect(() => setProbing(isAnyProbing), [isAnyProbing]);
  const jobs = useResource(`jobs ${id}`, (signal) =>
    call<Job[]>("/jobs", { query: { project_id: id }, signal }),
  );
  const input = useRef<HTMLInputElement>(null);
  const labelAddress = `${HOME}/label?project=${id}`;
  useKeys({
    upload: () => (isEngineer ? input.current?.click() : false),
    label: () => (isEngineer ? go(labelAddress) : false),
  });
  useEffect(() => {
    const warn = (event: BeforeUnloadEvent) => isUploading() && event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, []);
  const chooseFiles = () => input.current?.click();
  return (
    <>
      <Top title={project.data?.name ?? "Project"} parent={{ title: "Projects", href: HOME }}>
        {isEngineer && (
          <>
            <Button icon="upload" keyName="upload" onClick={chooseFiles}>
              Upload
            </Button>
            <ButtonLink icon="tag" kind="primary" keyName="label" href={labelAddress}>
              Label
            </ButtonLink>
          </>
        )}
      </Top>
      <main tabIndex={-1}>
        <div class="column">
          {isEngineer && <DropZone projectId={id} />}
          <input
            ref={input}
            type="file"
            multiple
            hidden
            onChange={({ currentTarget }) => {
              if (currentTarget.files) upload(id, chosenFiles(currentTarget.files));
              currentTarget.value = "";
            }}
          />
          <UploadTray projectId={id} />
          <Shown of={jobs} lines={1}>
            {(all) =>
              all.length === 0 ? null : (
                <section aria-label="Labeling jobs">
                  <h2 class="heading">Labeling jobs</h2>
                  <ul class="rows">
                    {all.map((job) => (
                      <JobLine key={job.job_id} job={job} />
                    ))}
                  </ul>
                </section>
              )
            }
          </Shown>
          <Shown of={{ ...videos, data: kept.current }}>
            {(all) =>
              all.length > 0 ? (
                <section aria-label="Videos and images">
                  <h2 class="heading">
                    Videos and images <span class="tertiary">{count(all.length)}</span>
                  </h2>
                  <ContactSheet videos={all} />
                </section>
              ) : (
                <Empty icon="film" title="No video or image yet">
                  {isEngineer ? (
                    <>
                      <p>Drop files or folders anywhere on this page.</p>
                      <Button icon="upload" kind="primary" keyName="upload" onClick={chooseFiles}>
                        Choose files
                      </Button>
                    </>
                  ) : (
                    <p>Somebody with the role engineer uploads them.</p>
                  )}
                </Empty>
              )
            }
          </Shown>
        </div>
      </main>
    </>
  );
}

const ContactSheet = ({ videos }: { videos: readonly Video[] }) => (
  <ul class="sheet">
    {videos.map((video) => (
      <li key={video.video_id}>
        <div class="card">
          <span class="image">
            {video.thumbnail_url ? (
              <img src={video.thumbnail_url} alt="" loading="lazy" width={320} height={180} />
            ) : (
              <Icon name={video.status === "failed" ? "triangle-alert" : "film"} size={24} />
            )}
          </span>
          <b title={video.filename}>{video.filename}</b>
          <span class={video.status === "failed" ? "bad" : "tertiary"}>{aboutVideo(video)}</span>
        </div>
      </li>
    ))}
  </ul>
);

function aboutVideo(video: Video): string {
  if (video.status === "failed") return video.failure ?? "cannot be read";
  if (video.status === "probing") return "a GPU node reads it …";
  const size = `${video.width} × ${video.height}`;
  if ((video.frame_count ?? 0) <= 1) return size;
  return `${duration(video.duration_seconds ?? 0)} · ${counted(video.frame_count ?? 0, "frame")} · ${size}`;
}

/** Takes files that are dropped anywhere in the window. */
function DropZone({ projectId }: { projectId: string }) {
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const over = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent) => {
      if (!hasFiles(event) || !event.dataTransfer) return;
      event.preventDefault();
      setOver(false);
      void droppedFiles(event.dataTransfer).then((chosen) => upload(projectId, chosen));
    };
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, [projectId]);
  return isOver ? (
    <div class="dropping">
      <Icon name="upload" size={28} /> Drop files or folders to upload them
    </div>
  ) : null;
}
