// What exports take of a workspace's storage. Goal: files that are there or being made count, at
// their true size once it is known, and nothing else does.

import { describe, expect, it } from "vitest";
import { expectedBytes } from "../../../../edge/vision/training/exports/options.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import type { ModelExport } from "../../../../shared/wire/exports.ts";
import { form, mp4 } from "../../../support/media.ts";
import { exportedBy } from "../../../support/model-exports.ts";
import { registerModel } from "../../../support/registered-model.ts";
import { workspaceOf } from "../../../support/rollout-world.ts";
import { newProject, register, scriptedNode } from "../../../support/scripted-node.ts";
import { tensorFile } from "../../../support/weights.ts";
import { createWorld } from "../../../support/world.ts";

describe("the workspace's quota", () => {
  it("counts files that are there and those that are being made, and no others", async () => {
    const each = expectedBytes(
      { variant: "det26n", task: "detection", classes: ["disc", "square", "star"] },
      { format: "onnx", artifact: "file", precision: "fp32", size: [96, 96] },
    );
    const bytesMax = each + 1_000;
    const tight = await createWorld({
      services: ["vision"],
      environment: { vision: { WORKSPACE_BYTES_MAX: String(bytesMax) } },
    });
    const owner = await register(tight);
    const own = await workspaceOf(owner);
    const by = await scriptedNode(tight, owner, { model_export: exportedBy });
    const { model_id } = await registerModel(tight, own, { file: tensorFile(new Map()) });
    const request = (output: string) =>
      ["POST", `/models/${model_id}/export`, { format: "onnx", output }] as const;
    const { export_id } = await owner.ok<ModelExport>(...request("end_to_end"));
    // Its room is held before it is made; the same again needs none.
    const full = await owner.send(...request("raw"));
    const refusal = { code: "quota_exceeded", bytes_max: bytesMax, bytes_wanted: each };
    expect([full.status, await full.json()]).toMatchObject([413, refusal]);
    expect((await owner.send(...request("end_to_end"))).status).toBe(202);
    const { project_id } = await newProject(owner);
    const upload = () =>
      owner.send("POST", "/upload", form(["project_id", project_id], { content: mp4(2_000) }));
    expect((await upload()).status).toBe(413);
    // Once it is there, its own size counts; one that failed counts nothing.
    await by.work();
    const taken = await owner.ok<ModelExport>("GET", `/models/${model_id}/exports/${export_id}`);
    expect(taken.bytes).toBeLessThan(1_000);
    const raw = await owner.ok<ModelExport>(...request("raw"));
    const failing = await by.claim(["model_export"]);
    const failed = { outcome: "failed", code: "x", detail: "no", retryable: false } as const;
    await by.finish(failing as ClaimedTask, failed);
    expect((await upload()).status).toBe(201);
    // And what failed is tried anew only where there is room by then.
    expect(raw.status).toBe("queued");
    expect((await owner.send(...request("raw"))).status).toBe(413);
  });
});
