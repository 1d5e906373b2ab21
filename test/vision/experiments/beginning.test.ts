// What an experiment is refused with. Goal: nothing begins that could say nothing, or that is
// another workspace's, and each refusal says why.

import { beforeAll, describe, expect, it } from "vitest";
import { createEndpointWorld, type EndpointWorld, refusal } from "../../support/endpoint-world.ts";
import { askedExperiment, shadowedEndpoint, splitEndpoint } from "../../support/experiments.ts";
import { registerModel } from "../../support/registered-model.ts";
import { newTenant, register as registerPerson } from "../../support/vision.ts";

const ABSENT = "00000000-0000-4000-8000-000000000000";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
});

describe("a beginning", () => {
  it.each<[string, object, [number, string]]>([
    ["neither an endpoint nor a job", { endpoint: undefined }, [422, "invalid_request"]],
    ["both", { job_id: ABSENT }, [422, "invalid_request"]],
    ["an endpoint of nobody's", { endpoint: "nobodys" }, [404, "not_found"]],
    ["a model of nobody's", { candidate: { model_id: ABSENT } }, [404, "not_found"]],
    ["no model", { candidate: {} }, [422, "invalid_request"]],
    ["an alias of no model", { candidate: { alias: "canary" } }, [409, "state_conflict"]],
    ["the baseline itself", { candidate: { alias: "active" } }, [422, "invalid_request"]],
    ["a metric of frames", { metric: "ap50_95" }, [422, "invalid_request"]],
    ["a metric that a shadow has not", { metric: "error_rate" }, [422, "invalid_request"]],
    ["a metric of nobody's", { metric: "beauty" }, [422, "invalid_request"]],
    ["slower as better", { direction: "higher" }, [422, "invalid_request"]],
    ["no effect", { minimum_effect: 0 }, [422, "invalid_request"]],
    ["an effect of all", { metric: "confidence", minimum_effect: 1 }, [422, "invalid_request"]],
    ["an alpha of 0", { alpha: 0 }, [422, "invalid_request"]],
    ["an alpha of 1", { alpha: 1 }, [422, "invalid_request"]],
    ["an endless number as alpha", { alpha: "1e999" }, [422, "invalid_request"]],
    ["a power of 1", { power: 1 }, [422, "invalid_request"]],
    ["a recall", { recall: 0.5 }, [422, "invalid_request"]],
    ["a confidence", { confidence: 0.5 }, [422, "invalid_request"]],
    ["half a sample", { budget: { samples: 0.5 } }, [422, "invalid_request"]],
    ["no days", { budget: { days: 0 } }, [422, "invalid_request"]],
    ["a negative rail", { guard_rails: { error_rate: -1 } }, [422, "invalid_request"]],
    ["a blank name", { name: "  " }, [422, "invalid_request"]],
    ["NUL in its hypothesis", { hypothesis: "a\0b" }, [422, "invalid_request"]],
    ["another's workspace", { workspace_id: ABSENT }, [404, "not_found"]],
  ])("is refused with %s", async (_, more, expected) => {
    hostile ??= (await shadowedEndpoint(w)).slug;
    expect(
      await w.admin.refused("POST", "/experiments", askedExperiment(w, hostile, more)),
    ).toEqual(expected);
  });
  let hostile: string | undefined;

  it("is refused where the endpoint does not serve both", async () => {
    const { slug } = await w.make();
    const reply = await w.admin.send("POST", "/experiments", askedExperiment(w, slug));
    expect(await refusal(reply)).toEqual([422, "invalid_request"]);
    const idle = await splitEndpoint(w, 0);
    expect(await w.admin.refused("POST", "/experiments", askedExperiment(w, idle.slug))).toEqual([
      422,
      "invalid_request",
    ]);
  });

  it("takes no model of another workspace", async () => {
    const admin = await registerPerson(w.world.urls.vision);
    await w.admin.ok("PATCH", `/admin/users/${admin.id}`, {
      workspace_id: w.workspaceId,
      role: "admin",
    });
    await admin.renew();
    const { workspaceId } = await newTenant(w.world.urls.vision, admin, "engineer");
    const theirs = await registerModel(w.world, workspaceId, { classes: ["disc"] });
    const { slug } = await shadowedEndpoint(w);
    const body = askedExperiment(w, slug, { candidate: { model_id: theirs.model_id } });
    expect(await w.admin.refused("POST", "/experiments", body)).toEqual([404, "not_found"]);
  });
});
