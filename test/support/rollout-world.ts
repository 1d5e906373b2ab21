// Devices of a vision world as tests script them: they enrol, beat and report over the real
// protocol. And exports of models that are there, without a node that makes them.

import { sql } from "drizzle-orm";
import { EnrolledDevice, HeartbeatAnswer, type ReportedModel } from "../../shared/wire/fleet.ts";
import { type DeviceFile, smallFile } from "./described-files.ts";
import { registerModel } from "./registered-model.ts";
import { type Api, apiAs, type Person } from "./scripted-node.ts";
import { freshAddress } from "./vision.ts";
import { tensorFile } from "./weights.ts";
import type { World } from "./world.ts";

/** A device that tests move. */
export interface ScriptedDevice {
  id: string;
  api: Api;
  enrolled: EnrolledDevice;
  /** Beats; gives what is wanted of it. */
  beat(model?: Partial<ReportedModel> | null): Promise<HeartbeatAnswer>;
  /** Says of what is wanted of it that it stands so; gives what is wanted then. */
  report(status: ReportedModel["status"], more?: Partial<ReportedModel>): Promise<HeartbeatAnswer>;
}

/** Makes a device and enrols it. */
export async function scriptedDevice(
  world: World,
  person: Person,
  more: Record<string, unknown> = {},
): Promise<ScriptedDevice> {
  const name = `device ${crypto.randomUUID().slice(0, 8)}`;
  const made = await person.ok<{ device_id: string; enrolment_code: string }>("POST", "/devices", {
    name,
    ...more,
  });
  const anybody = apiAs(world.urls.vision, "");
  // Where the service is behind Cloudflare, codes are counted by the sender's address.
  const address = { "CF-Connecting-IP": freshAddress() };
  const enrolled = EnrolledDevice.parse(
    await anybody.ok(
      "POST",
      "/devices/enrol",
      {
        code: made.enrolment_code,
        agent_version: "0.1.0",
        platform: "linux-x64",
        runtime: "onnxruntime-node 1.30.0",
      },
      address,
    ),
  );
  const api = apiAs(world.urls.vision, enrolled.token);
  const id = made.device_id;
  const beat: ScriptedDevice["beat"] = async (model = null) =>
    HeartbeatAnswer.parse(
      await api.ok("POST", `/devices/${id}/heartbeat`, { agent_version: "0.1.0", model }),
    );
  return {
    id,
    api,
    enrolled,
    beat,
    report: async (status, given = {}) => {
      const { desired } = await beat();
      if (!desired) throw new Error("nothing is wanted of the device");
      const { manifest_url: _, ...own } = desired;
      await beat({ ...own, slot: "a", status, ...given });
      return beat({ ...own, slot: "a", status, ...given });
    },
  };
}

/** A completed export of a model of its own, with its file in the store. */
export async function completedExport(
  world: World,
  workspaceId: string,
  { bytes, file }: DeviceFile = smallFile(),
  more: { output?: string; batch?: number | null; state?: string; name?: string } = {},
): Promise<{ exportId: string; modelId: string; key: string }> {
  const { output = "end_to_end", batch = null, state = "completed", name } = more;
  const { model_id: modelId } = await registerModel(world, workspaceId, {
    ...(name === undefined ? {} : { name }),
    file: tensorFile(new Map()),
    classes: [...file.classes],
  });
  const exportId = crypto.randomUUID();
  const key = `ws/${workspaceId}/model-exports/${modelId}/${exportId}/model.onnx`;
  await world.media.put(key, new Uint8Array(bytes));
  const [height, width] = file.image_size;
  const isDone = state === "completed";
  await world.visionDatabase.execute(sql`
    INSERT INTO model_export (id, workspace_id, model_id, fingerprint, format, artifact, precision,
      output, height, width, batch, bytes_expected, state, storage_key, bytes, sha256, failure)
    VALUES (${exportId}::uuid, ${workspaceId}::uuid, ${modelId}::uuid, 'a test', 'onnx', 'file',
      'fp32', ${output}, ${height}::int, ${width}::int, ${batch}::int, 1, ${state},
      ${isDone ? key : null}::text,
      ${bytes.length}::bigint, ${file.sha256}, ${state === "failed" ? "a test" : null}::text)`);
  return { exportId, modelId, key };
}

/** The workspace that a person is in. */
export async function workspaceOf(person: Person): Promise<string> {
  const me = await person.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  return me.workspaces[0]?.workspace_id ?? "";
}
