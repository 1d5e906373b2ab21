// A body's size costs the vision service no memory. The bench sends the full 2 GB. The process that
// is measured holds the local object store too, whose own buffers come with the first uploads: so
// it is idle again after two small ones before the large one is sent.

import { expect, it } from "vitest";
import { API } from "../../../../edge/vision/base/api.ts";
import { streamedForm } from "../../../support/media.ts";
import { peakGrowth } from "../../../support/memory.ts";
import { register } from "../../../support/vision.ts";
import { createWorld } from "../../../support/world.ts";

const BYTES = 300_000_000;
const GROWTH_MAX = 128 * 1024 * 1024;

it("keeps workerd within 128 MB of idle while 300 MB pass through", async () => {
  const world = await createWorld({ services: ["vision"] });
  const person = await register(world.urls.vision);
  const made = await person.ask("POST", "/projects", { name: "large" });
  const projectId = String(made.body.project_id);
  const upload = async (bytes: number) => {
    const { chunks, headers } = streamedForm(projectId, bytes);
    const response = await fetch(`${world.urls.vision}${API}/upload`, {
      method: "POST",
      headers: { ...headers, Authorization: `Bearer ${person.tokens.access_token}` },
      body: ReadableStream.from(chunks()),
      duplex: "half",
    } as RequestInit);
    expect([response.status, await response.json()]).toMatchObject([201, { bytes }]);
  };
  await upload(20_000_000);
  await upload(20_000_000);
  const growth = await peakGrowth(() => upload(BYTES));
  expect(growth).toBeLessThan(GROWTH_MAX);
});
