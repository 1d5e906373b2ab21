// A labeling job by words: which videos, what to look for, from which confidence on.

import { useState } from "preact/hooks";
import type { Job } from "../../../shared/wire/labeling.ts";
import type { Project, Video } from "../../../shared/wire/vision.ts";
import { type ApiError, apiErrorOf, call } from "../kit/api.ts";
import { counted, duration } from "../kit/format.ts";
import { Top } from "../kit/page.tsx";
import { useResource } from "../kit/resource.ts";
import { address, go, HOME } from "../kit/router.ts";
import { Button, ButtonLink, Empty, ErrorNote, Field, Icon, Shown } from "../kit/widgets.tsx";

const THRESHOLD_DEFAULT = 0.5;
/** Videos of a job, as `POST /label` takes them. */
const VIDEOS_MAX = 900;

/** The form of a job. */
export function Page() {
  const id = address.value.query.get("project") ?? "";
  const project = useResource(`project ${id}`, (signal) =>
    call<Project>(`/projects/${id}`, { signal }),
  );
  const videos = useResource(`videos ${id}`, (signal) =>
    call<Video[]>(`/projects/${id}/videos`, { signal }),
  );
  const above = `${HOME}/p/${id}`;
  return (
    <>
      <Top title="Label" parent={{ title: project.data?.name ?? "Project", href: above }} />
      <main tabIndex={-1}>
        <div class="column narrow">
          <Shown of={videos}>
            {(all) => {
              const ready = all.filter(({ status }) => status === "ready");
              return ready.length > 0 ? (
                <>
                  {ready.length < all.length && (
                    <p class="note row" role="status">
                      <Icon name="clock" /> {counted(all.length - ready.length, "video")} cannot be
                      labeled yet: a GPU node reads each of them first.
                    </p>
                  )}
                  <LabelForm projectId={id} videos={ready} />
                </>
              ) : (
                <Empty icon="film" title="Nothing to label yet">
                  <p>Upload videos or images first; a GPU node reads each of them once.</p>
                  <ButtonLink icon="upload" kind="primary" href={above}>
                    Back to the project
                  </ButtonLink>
                </Empty>
              );
            }}
          </Shown>
        </div>
      </main>
    </>
  );
}

/** Words between commas or line ends, each once. */
const wordsOf = (text: string): string[] => [
  ...new Set(
    text
      .split(/[,\n]/)
      .map((word) => word.trim())
      .filter(Boolean),
  ),
];

interface LabelFormProps {
  projectId: string;
  videos: readonly Video[];
}

function LabelForm({ projectId, videos }: LabelFormProps) {
  const [text, setText] = useState("");
  const [threshold, setThreshold] = useState(THRESHOLD_DEFAULT);
  const [fps, setFps] = useState("1");
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  // One key for one form: a start that is sent twice begins one job.
  const [key] = useState(() => crypto.randomUUID());
  const prompts = wordsOf(text);
  const chosen = videos.filter((video) => !left.has(video.video_id));
  const isTooMany = chosen.length > VIDEOS_MAX;
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const name = String(new FormData(event.currentTarget).get("name") ?? "").trim();
    setBusy(true);
    setError(null);
    const body = {
      project_id: projectId,
      video_ids: chosen.map((video) => video.video_id),
      prompts,
      threshold,
      ...(fps === "" ? {} : { fps: Number(fps) }),
      ...(name === "" ? {} : { name }),
    };
    try {
      const headers = { "Idempotency-Key": key };
      const job = await call<Pick<Job, "job_id">>("/label", { method: "POST", body, headers });
      go(`${HOME}/j/${job.job_id}`);
    } catch (thrown) {
      setError(apiErrorOf(thrown));
      setBusy(false);
    }
  };
  const nearest = error && Array.isArray(error.data.nearest) ? error.data.nearest : [];
  return (
    <form class="card" onSubmit={submit}>
      <label class="field">
        <span>What to look for</span>
        <textarea
          rows={2}
          required
          autofocus
          value={text}
          placeholder="person, bag, bicycle"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <small class="tertiary">
          One or more words or phrases with commas between them. Each becomes a class.
        </small>
      </label>
      {prompts.length > 0 && (
        <p class="row wrap">
          {prompts.map((prompt) => (
            <span class="chip" key={prompt}>
              {prompt}
            </span>
          ))}
        </p>
      )}
      <label class="field">
        <span>
          Shown from a confidence of <b>{threshold.toFixed(2)}</b>
        </span>
        <input
          type="range"
          min={0.05}
          max={0.95}
          step={0.05}
          value={threshold}
          onInput={(event) => setThreshold(event.currentTarget.valueAsNumber)}
        />
        <small class="tertiary">It can be moved later: boxes down to 0.05 are kept.</small>
      </label>
      <label class="field">
        <span>Frames of videos</span>
        <select value={fps} onChange={(event) => setFps(event.currentTarget.value)}>
          <option value="0.2">one every five seconds</option>
          <option value="1">one a second</option>
          <option value="5">five a second</option>
          <option value="">every frame</option>
        </select>
      </label>
      <Field label="Name" name="name" maxLength={200} hint="The words, when left empty" />
      <fieldset>
        <legend>
          {counted(chosen.length, "video")} of {videos.length}
        </legend>
        <ul class="choices">
          {videos.map((video) => (
            <li key={video.video_id}>
              <label class="row">
                <input
                  type="checkbox"
                  checked={!left.has(video.video_id)}
                  onChange={({ currentTarget }) => {
                    const next = new Set(left);
                    if (currentTarget.checked) next.delete(video.video_id);
                    else next.add(video.video_id);
                    setLeft(next);
                  }}
                />
                <span class="name">{video.filename}</span>
                <span class="tertiary">
                  {(video.frame_count ?? 0) > 1 ? duration(video.duration_seconds ?? 0) : "image"}
                </span>
              </label>
            </li>
          ))}
        </ul>
      </fieldset>
      {isTooMany && <p class="warn">A job takes at most {VIDEOS_MAX} videos: leave some out.</p>}
      {error && <ErrorNote error={error} />}
      {nearest.length > 0 && (
        <p class="row wrap">
          Known words that are near:
          {nearest.map((word) => (
            <Button key={String(word)} onClick={() => setText(replaced(text, error, String(word)))}>
              {String(word)}
            </Button>
          ))}
        </p>
      )}
      <div class="row">
        <Button
          type="submit"
          kind="primary"
          icon="tag"
          disabled={isBusy || prompts.length === 0 || chosen.length === 0 || isTooMany}
        >
          Start labeling
        </Button>
      </div>
    </form>
  );
}

/** The words with the one that was refused replaced. */
const replaced = (text: string, error: ApiError | null, word: string): string =>
  wordsOf(text)
    .map((one) => (one === error?.data.prompt ? word : one))
    .join(", ");
