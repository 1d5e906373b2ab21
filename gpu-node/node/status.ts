// The status page: what the node is, what it lacks and what it works on, for whoever is on this
// machine. It shows no secret and changes nothing.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { METRICS_TYPE, type Metric, metricsText } from "../../shared/metrics.ts";
import type { Capabilities, TaskProgress } from "../../shared/tasks/node-protocol.ts";
import { iso } from "../../shared/time.ts";
import type { RunningTask } from "./worker-state.ts";

/** What the status page shows. */
export interface WorkerStatus {
  since: string;
  draining: boolean;
  socket: boolean;
  last_heartbeat_at: string | null;
  ended: Record<string, number>;
  slots: (null | {
    task_id: string;
    kind: string;
    attempt: number;
    since: string;
    wanted: string;
    progress: TaskProgress | null;
    pid: number | null;
  })[];
}

/** What it shows of a task that runs. */
export const taskStatus = ({ held, slot }: RunningTask) => ({
  task_id: held.task.task_id,
  kind: held.task.kind,
  attempt: held.task.attempt,
  since: iso(held.since),
  wanted: held.demand,
  progress: held.progress,
  pid: slot.pid,
});

export interface Status {
  name: string;
  node_id: string | null;
  url: string;
  capabilities: Capabilities;
  worker: WorkerStatus;
}

export interface StatusPage {
  port: number;
  close(): void;
}

const escaped = (text: unknown) =>
  String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

const PATHS = ["/", "/status.json", "/metrics"];

/** What the page is made of, each time that somebody looks. */
export interface StatusSources {
  read(): Status;
  metrics(): Promise<Metric[]>;
}

/**
 * Serves `/` for people, `/status.json` for programs and `/metrics` for Prometheus, on this machine
 * only.
 */
export async function serveStatus(
  port: number,
  { read, metrics }: StatusSources,
): Promise<StatusPage> {
  const server = createServer((request, response) => {
    // A foreign page that names this address by a host of its own gets nothing.
    const host = (request.headers.host ?? "").replace(/:\d+$/, "");
    const known = host === "127.0.0.1" || host === "localhost";
    const path = (request.url ?? "").split("?")[0];
    const headers = {
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    };
    if (!known || request.method !== "GET" || !PATHS.includes(path ?? "")) {
      response.writeHead(known ? 404 : 403, headers).end();
    } else if (path === "/metrics") {
      metrics().then(
        (all) => {
          response.writeHead(200, { ...headers, "content-type": METRICS_TYPE });
          response.end(metricsText(all));
        },
        // Who scrapes sees that it failed, and asks again.
        () => response.writeHead(500, headers).end(),
      );
    } else if (path === "/") {
      response.writeHead(200, { ...headers, "content-type": "text/html; charset=utf-8" });
      response.end(page(read()));
    } else {
      response.writeHead(200, { ...headers, "content-type": "application/json" });
      response.end(JSON.stringify(read()));
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: { code?: string }) => {
      const taken = `port ${port} of the status page is taken: set VANTAGE_NODE_STATUS_PORT`;
      reject(error.code === "EADDRINUSE" ? new Error(taken) : error);
    });
    server.listen(port, "127.0.0.1", resolve);
  });
  server.unref();
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

const row = (name: string, value: unknown) =>
  `<tr><th>${escaped(name)}</th><td>${escaped(value)}</td></tr>`;

function page({ name, url, node_id, capabilities, worker }: Status): string {
  const { device, ffmpeg, segmenters, missing, version } = capabilities;
  const ended = Object.entries(worker.ended).map(([how, count]) => `${count} ${how}`);
  const state = worker.draining ? "draining" : worker.socket ? "connected" : "polling";
  const slots = worker.slots.map((slot, index) =>
    slot
      ? row(
          `slot ${index + 1}`,
          `${slot.kind} ${slot.task_id}, attempt ${slot.attempt}, since ${slot.since}` +
            (slot.progress ? `, ${slot.progress.done} of ${slot.progress.total || "?"}` : "") +
            (slot.wanted === "go_on" ? "" : `, to ${slot.wanted}`),
        )
      : row(`slot ${index + 1}`, "free"),
  );
  const rows = [
    row("service", url),
    row("node", node_id ?? "known by its token"),
    row("state", `${state} since ${worker.since}`),
    row("last heartbeat", worker.last_heartbeat_at ?? "none was answered yet"),
    row("version", version),
    row("device", `${device.count} × ${device.name}`),
    row("ffmpeg", ffmpeg ?? "none"),
    row("segmenters", segmenters.map(({ title }) => title).join(", ") || "none"),
    row("tasks ended", ended.join(", ") || "none"),
    ...slots,
  ];
  const lacks = missing.map((sentence) => `<li>${escaped(sentence)}</li>`).join("");
  const style = "body{font:16px sans-serif;margin:2rem}th{text-align:left;padding-right:1rem}";
  return (
    `<!doctype html><html lang="en"><meta charset="utf-8"><title>${escaped(name)}</title>` +
    `<style>${style}</style><h1>GPU node ${escaped(name)}</h1><table>${rows.join("")}</table>` +
    `${lacks ? `<h2>What it lacks</h2><ul>${lacks}</ul>` : ""}</html>`
  );
}
