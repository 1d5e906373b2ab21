// The first page: every project of the person's workspaces.

import { useRef, useState } from "preact/hooks";
import type { Project } from "../../../shared/wire/vision.ts";
import { type ApiError, apiErrorOf, call } from "../kit/api.ts";
import { counted, moment } from "../kit/format.ts";
import { useKeys } from "../kit/keys.ts";
import { Top } from "../kit/page.tsx";
import { useResource } from "../kit/resource.ts";
import { address, go, HOME, setQuery } from "../kit/router.ts";
import { workspacesWith } from "../kit/session.ts";
import { Button, Dialog, Empty, ErrorNote, Field, Icon, Shown } from "../kit/widgets.tsx";

const addressOf = (project: Pick<Project, "project_id">) => `${HOME}/p/${project.project_id}`;

/** The list of projects. */
export function Page() {
  const [isNewShown, setNew] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const q = address.value.query.get("q") ?? "";
  const projects = useResource(`projects ${q}`, (signal) =>
    call<Project[]>("/projects", { query: { q }, signal }),
  );
  const isEngineer = workspacesWith("engineer").length > 0;
  const begin = () => isEngineer && setNew(true);
  useKeys({ newProject: begin, search: () => search.current?.focus() });
  return (
    <>
      <Top title="Projects">
        {isEngineer && (
          <Button icon="plus" kind="primary" keyName="newProject" onClick={begin}>
            New project
          </Button>
        )}
      </Top>
      <main tabIndex={-1}>
        <div class="column">
          <label class="search">
            <Icon name="search" />
            <input
              ref={search}
              type="search"
              placeholder="Search by name"
              aria-label="Search projects by name"
              value={q}
              onInput={(event) => setQuery({ q: event.currentTarget.value })}
            />
          </label>
          <Shown of={projects}>
            {(all) => {
              if (all.length > 0) return <ProjectRows projects={all} />;
              if (q !== "") {
                return (
                  <Empty icon="search" title="No project has this in its name">
                    <Button onClick={() => setQuery({ q: null })}>Show all projects</Button>
                  </Empty>
                );
              }
              return (
                <Empty icon="folder-open" title="No project yet">
                  {isEngineer ? (
                    <>
                      <p>A project holds videos and images, and what was labeled in them.</p>
                      <Button icon="plus" kind="primary" keyName="newProject" onClick={begin}>
                        New project
                      </Button>
                    </>
                  ) : (
                    <p>
                      Somebody with the role engineer makes projects. An administrator can give you
                      that role.
                    </p>
                  )}
                </Empty>
              );
            }}
          </Shown>
        </div>
      </main>
      {isNewShown && <NewProject onClose={() => setNew(false)} />}
    </>
  );
}

const ProjectRows = ({ projects }: { projects: readonly Project[] }) => (
  <ul class="rows">
    {projects.map((project) => (
      <li key={project.project_id}>
        <a class="card row" href={addressOf(project)}>
          <Icon name="folder-open" size={18} />
          <b class="name">{project.name}</b>
          <span class="secondary about">{project.description}</span>
          <span class="space" />
          <span class="chip">{counted(project.video_count, "video")}</span>
          <time class="tertiary when" dateTime={project.created_at}>
            {moment(project.created_at)}
          </time>
        </a>
      </li>
    ))}
  </ul>
);

function NewProject({ onClose }: { onClose: () => void }) {
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const workspaces = workspacesWith("engineer");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const form = new FormData(event.currentTarget);
    const body = {
      name: String(form.get("name") ?? "").trim(),
      description: String(form.get("description") ?? "").trim(),
      workspace_id: String(form.get("workspace") ?? workspaces[0]?.workspace_id),
    };
    setBusy(true);
    try {
      go(addressOf(await call<Project>("/projects", { method: "POST", body })));
    } catch (thrown) {
      setError(apiErrorOf(thrown));
      setBusy(false);
    }
  };
  return (
    <Dialog title="New project" onClose={onClose}>
      <h1>New project</h1>
      <form onSubmit={submit}>
        <Field label="Name" name="name" required maxLength={200} autofocus />
        <Field label="What it is about" name="description" maxLength={2000} />
        {workspaces.length > 1 && (
          <label class="field">
            <span>Workspace</span>
            <select name="workspace">
              {workspaces.map((one) => (
                <option key={one.workspace_id} value={one.workspace_id}>
                  {one.name}
                </option>
              ))}
            </select>
          </label>
        )}
        {error && <ErrorNote error={error} />}
        <div class="row">
          <Button type="submit" kind="primary" disabled={isBusy}>
            Make the project
          </Button>
          <Button kind="quiet" onClick={onClose}>
            Not now
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
