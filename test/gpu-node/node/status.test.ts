// The status page of a running node: it shows what the node does to this machine alone, and no
// secret.

import { readFileSync } from "node:fs";
import { get } from "node:http";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { freePorts } from "../../../edge/local/ports.ts";
import { rectangles } from "../../support/clips.ts";
import { startNode } from "../../support/gpu-node.ts";
import { type NodeService, startNodeService, until } from "../../support/node-service.ts";

let service: NodeService;
beforeEach(async () => {
  service = await startNodeService();
});
afterEach(() => service.close());

const start = (more: Record<string, string> = {}) =>
  startNode({ VANTAGE_URL: service.url, VANTAGE_NODE_TOKEN: service.token, ...more });

const label = () =>
  service.enqueue("label", {
    video: service.source("v", readFileSync(rectangles())),
    video_id: "v",
    job_id: "j",
    prompts: [{ kind: "text", class_name: "thing", text: "red" }],
    frames: [0, 5, 10],
    resolution: null,
    images: [null, null, null],
    segmenter: null,
    model: null,
  });

describe("the status page", () => {
  /** On a port that was free; where another program was quicker, on another. */
  async function startWithPage(more: Record<string, string>) {
    for (;;) {
      const [port = 0] = await freePorts(1);
      const node = start({ VANTAGE_NODE_STATUS_PORT: String(port), ...more });
      let over = false;
      void node.ended.then(() => {
        over = true;
      });
      const started = () => node.lines().some(({ event }) => event === "node_started");
      await until("it started or ended", () => over || started());
      if (started()) return { node, port };
    }
  }

  it("says which key to change where its port is taken, before it takes a task", async () => {
    const task = label();
    const { port } = new URL(service.url);
    const node = start({ VANTAGE_NODE_STATUS_PORT: port });
    expect(await node.ended).toMatchObject({ code: 1 });
    expect(node.output()).toMatch(
      /port \d+ of the status page is taken: set VANTAGE_NODE_STATUS_PORT/,
    );
    expect(task.fence).toBe(0);
  });

  it("shows what the node does, to this machine's own names only", async () => {
    const { node, port } = await startWithPage({ VANTAGE_NODE_NAME: "<b>node</b>" });
    const url = `http://127.0.0.1:${port}`;
    expect(node.lines().some(({ event }) => event === "node_started")).toBe(true);
    const status = (await (await fetch(`${url}/status.json`)).json()) as Record<string, unknown>;
    expect(status).toMatchObject({ name: "<b>node</b>", worker: { draining: false } });
    const html = await (await fetch(url)).text();
    expect(html).toContain("&#60;b&#62;node");
    expect(html).not.toMatch(/<script|<b>/);
    expect(JSON.stringify(status) + html).not.toContain(service.token);
    expect((await fetch(`${url}/other`)).status).toBe(404);
    const foreign = await new Promise((done) =>
      get(url, { headers: { host: "evil.example" } }, (answer) => done(answer.statusCode)),
    );
    expect(foreign).toBe(403);
  });
});
