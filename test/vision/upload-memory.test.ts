// A body's size costs the vision service no memory. The bench sends the full 2 GB.

import { expect, it } from "vitest";
import { API } from "../../edge/vision/auth/parts.ts";
import { streamedForm } from "../support/media.ts";
import { peakGrowth } from "../support/memory.ts";
import { register } from "../support/vision.ts";
import { createWorld } from "../support/world.ts";

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
  const growth = await peakGrowth(() => upload(BYTES));
  expect(growth).toBeLessThan(GROWTH_MAX);
});
