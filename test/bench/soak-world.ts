// The running stack of the soak, and what its loops work on: two people in workspaces of their own,
// a model to predict with, and a labeling job that is longer than the run.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AwsClient } from "aws4fetch";
import { openDatabase } from "../../edge/http/database.ts";
import { demoClip } from "../../edge/local/clip.ts";
import { databaseUrls } from "../../edge/local/databases.ts";
import { startNeonEndpoint } from "../../edge/local/neon.ts";
import { type Credentials, stateAt } from "../../edge/local/state.ts";
import { type VisionApi, visionApi } from "../../edge/local/vision-api.ts";
import { Secret } from "../../shared/secret.ts";
import { clip, rectangles } from "../support/clips.ts";
import type { Ids } from "../support/everything.ts";
import { form } from "../support/media.ts";
import { registerModel } from "../support/registered-model.ts";
import { allGone, startStackProcess } from "../support/stack-process.ts";
import { inspectorAddress } from "./soak-heaps.ts";

const PASSWORD = "correct horse battery staple";
const MODELS = process.env.VANTAGE_MODELS ?? join(tmpdir(), "vantage-bench-models");

const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

/** Where the parts of a stack are reached. */
interface Addresses {
  urls: { markets: string; console: string; vision: string };
  s3Url: string;
}

/** The stack in processes of its own; `stop` leaves nothing behind. */
export async function startSoak() {
  const root = mkdtempSync(join(tmpdir(), "vantage-soak-"));
  const state = stateAt(join(root, "state"));
  const inspector = await inspectorAddress();
  const more = { VANTAGE_MODELS: MODELS, WORKERD_INSPECTOR: inspector };
  const stack = startStackProcess(state.dir, [0, 0, 0], ["--no-apt"], more);
  const stop = async () => {
    stack.child.kill("SIGTERM");
    const status = await stack.ended;
    await allGone(state.dir);
    rmSync(root, { recursive: true, force: true });
    return status;
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => stop().then(() => process.exit(130)));
  await stack.printed(/Vantage runs/);
  const { urls, s3Url } = JSON.parse(readFileSync(state.running, "utf8")) as Addresses;
  return { state, urls, s3Url, inspector, pid: stack.child.pid ?? 0, stop };
}
type SoakStack = Awaited<ReturnType<typeof startSoak>>;

/** Somebody who is logged in. */
interface Person extends VisionApi {
  token: string;
}

/** An account and its session, which outlives the run. */
async function signUp(url: string, name: string) {
  const who = { email: `${name}@example.com`, password: PASSWORD };
  await visionApi(url).post("/auth/register", { ...who, display_name: name });
  return logIn(url, name);
}
async function logIn(url: string, name: string): Promise<Person> {
  const who = { email: `${name}@example.com`, password: PASSWORD };
  const session = await visionApi(url).post<{ access_token: string }>("/auth/login", who);
  return { ...visionApi(url, session.access_token), token: session.access_token };
}

/** A file as it is uploaded into a project. */
export const videoForm = (projectId: string, path: string, filename: string) =>
  form(["project_id", projectId], { content: new Uint8Array(readFileSync(path)), filename });

/** Polls until a thing is no longer on its way; fails by its failure. */
export async function whenEnded<T extends { status: string; failure?: string | null }>(
  api: VisionApi,
  path: string,
): Promise<T> {
  for (;;) {
    const thing = await api.get<T>(path);
    if (!["probing", "uploading", "queued", "running"].includes(thing.status)) {
      if (thing.status === "failed") throw new Error(`${path} failed: ${thing.failure}`);
      return thing;
    }
    await pause(200);
  }
}

/** A project with a small video, a job of imported labels, and what else routes name by an id. */
async function furnish(api: VisionApi): Promise<Ids & { project_id: string; job_id: string }> {
  const { workspaces } = await api.get<{ workspaces: { workspace_id: string }[] }>("/auth/me");
  const { project_id } = await api.post<{ project_id: string }>("/projects", { name: "soak" });
  const sent = videoForm(project_id, rectangles(), "film.mp4");
  const { video_id } = await api.post<{ video_id: string }>("/upload", sent);
  await whenEnded(api, `/videos/${video_id}`);
  const yolo = { names: ["person"], labels: { film_000000: "0 0.5 0.5 0.2 0.2" } };
  const { job } = await api.post<{ job: { job_id: string } }>("/import", { project_id, yolo });
  const { job_id } = job;
  const annotations = `/jobs/${job_id}/annotations`;
  const { items } = await api.get<{ items: { annotation_id: string }[] }>(annotations);
  const annotation_id = items[0]?.annotation_id ?? "";
  const workspace_id = workspaces[0]?.workspace_id ?? "";
  return { workspace_id, project_id, video_id, job_id, annotation_id };
}

/** A member who owns what the loops work on, and a guest who is admin of another workspace. */
export async function signUpBoth({ urls }: SoakStack) {
  const admin = await signUp(urls.vision, "admin");
  const own = await furnish(admin);
  // Who sends hostile values is admin of another workspace, and sees nothing of this one's.
  const { workspace_id: away } = await admin.post<{ workspace_id: string }>("/admin/workspaces", {
    name: "hostile",
  });
  const stranger = await (await signUp(urls.vision, "guest")).get<{ id: string }>("/auth/me");
  for (const [workspace_id, role] of [
    [away, "admin"],
    [own.workspace_id, null],
  ])
    await admin.patch(`/admin/users/${stranger.id}`, { workspace_id, role });
  const guest = await logIn(urls.vision, "guest");
  const others = await furnish(guest);
  return { admin, own, guest, others };
}

/** Activates a model, as a training would have left it. */
export async function activateModel(soaked: SoakStack, admin: VisionApi, workspaceId: string) {
  const { state } = soaked;
  const port = Number(readFileSync(join(state.postgres, "postmaster.pid"), "utf8").split("\n")[3]);
  const endpoint = await startNeonEndpoint(port);
  const credentials = JSON.parse(
    readFileSync(join(state.dir, "credentials.json"), "utf8"),
  ) as Credentials;
  const s3 = new AwsClient({
    accessKeyId: credentials.s3AccessKeyId,
    secretAccessKey: credentials.s3SecretAccessKey,
    service: "s3",
    region: "auto",
  });
  const world = {
    visionDatabase: openDatabase(new Secret(databaseUrls(endpoint.port, credentials).visionWriter)),
    media: {
      put: (key: string, body: Buffer<ArrayBuffer>) =>
        s3.fetch(`${soaked.s3Url}/vantage-vision/${key}`, { method: "PUT", body }),
    },
  };
  const { model_id } = await registerModel(world, workspaceId);
  await endpoint.close();
  await admin.post(`/models/${model_id}/activate`, {});
}

/** Labels pedestrians, or what is given, for longer than so many minutes. */
export async function labelLong(
  admin: VisionApi,
  projectId: string,
  run: { minutes: number; clip: string | undefined; say: (line: string) => void },
) {
  const source = (await demoClip(join(MODELS, "clips"), run.clip, run.say)).path;
  const loops = String(Math.ceil(run.minutes / 10));
  const long = clip("long.avi", "-stream_loop", loops, "-i", source, "-c", "copy");
  const { video_id: longId } = await admin.post<{ video_id: string }>(
    "/upload",
    videoForm(projectId, long, "long.avi"),
  );
  const video = await whenEnded<{ status: string; frame_count: number }>(
    admin,
    `/videos/${longId}`,
  );
  const labeled = await admin.post<{ job_id: string }>("/label", {
    project_id: projectId,
    video_ids: [longId],
    prompts: ["person"],
    threshold: 0.3,
  });
  return { videoId: longId, frames: video.frame_count, jobId: labeled.job_id };
}
