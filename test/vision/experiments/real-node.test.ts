// An experiment with a real node: a model that looks at a tenth of the pixels is the shadow of
// another one, is found to be faster by the images that both looked at, is promoted, and is taken
// back.

import sharp from "sharp";
import { expect, it } from "vitest";
import { Experiment } from "../../../edge/vision/experiments/campaigns/records.ts";
import { Endpoint, EndpointStatus } from "../../../shared/wire/endpoints.ts";
import type { ServeStatus } from "../../../shared/wire/serving.ts";
import { toolsOrSay } from "../../support/clips.ts";
import { startNode } from "../../support/gpu-node.ts";
import { form } from "../../support/media.ts";
import { registerModel } from "../../support/registered-model.ts";
import { register } from "../../support/scripted-node.ts";
import { createWorld } from "../../support/world.ts";

/** Enough for a difference of several times; each is shown to both. */
const IMAGES = 70;

const found = toolsOrSay();

it.skipIf(!found)(
  "finds the faster model behind a shadow, promotes it, and goes back",
  async () => {
    const world = await createWorld({ services: ["vision"] });
    const admin = await register(world);
    const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
    const workspaceId = me.workspaces[0]?.workspace_id ?? "";
    const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
    startNode({ VANTAGE_URL: world.urls.vision, VANTAGE_NODE_CODE: code });
    await expect
      .poll(async () => (await admin.ok<ServeStatus>("GET", "/serve/status")).nodes.able)
      .toBe(1);
    const baseline = await registerModel(world, workspaceId, { image_size: 320 });
    const candidate = await registerModel(world, workspaceId, { image_size: 96 });
    await admin.ok("POST", "/endpoints", {
      slug: "gate",
      models: [{ model_id: baseline.model_id }],
      shadow: { model_id: candidate.model_id },
    });
    const content = new Uint8Array(
      await sharp({ create: { width: 200, height: 120, channels: 3, background: "#a33" } })
        .png()
        .toBuffer(),
    );
    const shadow = async () => {
      const status = EndpointStatus.parse(await admin.ok("GET", "/endpoints/gate/status"));
      return status.windows["1h"].shadows[0];
    };
    const predict = async () => {
      const answer = await admin.send("POST", "/endpoints/gate/predict", form({ content }));
      expect([answer.status, answer.headers.get("X-Model-Id")]).toEqual([200, baseline.model_id]);
      await answer.arrayBuffer();
    };
    // Both are open before it counts.
    await predict();
    await expect.poll(async () => (await shadow())?.mirrored ?? 0).toBe(1);
    const begun = Experiment.parse(
      await admin.ok("POST", "/experiments", {
        name: "a tenth of the pixels",
        endpoint: "gate",
        baseline: { model_id: baseline.model_id },
        candidate: { model_id: candidate.model_id },
        metric: "latency",
        minimum_effect: 0.1,
        guard_rails: { error_rate: 0.2, p95_ms: 20_000 },
      }),
    );
    const path = `/experiments/${begun.experiment_id}`;
    const ended = async () => {
      for (let round = 0; round < 6; round++) {
        for (let image = 0; image < IMAGES; image++) await predict();
        const mirrored = 1 + IMAGES * (round + 1);
        await expect.poll(async () => (await shadow())?.mirrored).toBe(mirrored);
        await world.tick(Date.now());
        const now = Experiment.parse(await admin.ok("GET", path));
        if (now.status !== "running") return now;
      }
      return Experiment.parse(await admin.ok("GET", path));
    };
    const { status, reason, results } = await ended();
    expect([status, reason, results.verdict]).toEqual(["completed", "decided", "candidate_better"]);
    const seen = await shadow();
    // Each image that both looked at counts, but for those for which a model had to be opened.
    expect(results.samples).toBeLessThanOrEqual((seen?.compared ?? 0) - 1);
    expect(results.samples).toBeGreaterThan((seen?.compared ?? 0) - 5);
    expect(results.effect).toBeLessThan(-0.1);
    expect(results.high).toBeLessThan(0);
    expect(results.guard_rails.map(({ broken }) => broken)).toEqual([false, false]);

    const done = Experiment.parse(await admin.ok("POST", `${path}/complete`, { promote: true }));
    expect(done.promotion).toMatchObject({ kind: "endpoint", winner_model_id: candidate.model_id });
    const answeredBy = async () => {
      const answer = await admin.send("POST", "/endpoints/gate/predict", form({ content }));
      await answer.arrayBuffer();
      return [answer.status, answer.headers.get("X-Model-Id")];
    };
    expect(await answeredBy()).toEqual([200, candidate.model_id]);
    await admin.ok("POST", `${path}/rollback`);
    expect(await answeredBy()).toEqual([200, baseline.model_id]);
    const { settings } = Endpoint.parse(await admin.ok("GET", "/endpoints/gate"));
    expect(settings.shadow?.model_id).toBe(candidate.model_id);
  },
);
