// The group `metrics`: what the console, the vision service and a node print for Prometheus, read
// by its Python client's own parser.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePorts } from "../../edge/local/ports.ts";
import { register } from "../support/vision.ts";
import { type Group, runScript } from "./group.ts";
import { QUICK_NODE, startNode, startServices } from "./services.ts";

export const metrics: Group = {
  async run(context) {
    const services = await startServices();
    const { urls, folder, metricsToken } = services;
    const admin = await register(urls.vision);
    const [port = 0] = await freePorts(1);
    const node = startNode(services, admin, {
      entry: QUICK_NODE,
      environment: { ...process.env, VANTAGE_NODE_STATUS_PORT: String(port) },
    });
    try {
      await node.ready;
      const bearer = { Authorization: `Bearer ${metricsToken}` };
      const scrapes = [
        { name: "console", url: urls.console, headers: bearer, metrics: 10, histograms: false },
        { name: "vision", url: urls.vision, headers: bearer, metrics: 15, histograms: true },
        {
          name: "node",
          url: `http://127.0.0.1:${port}`,
          headers: {},
          metrics: 20,
          histograms: false,
        },
      ];
      const scraped = await Promise.all(
        scrapes.map(async ({ url, headers, ...one }) => {
          const response = await fetch(`${url}/metrics`, { headers });
          if (!response.ok) throw new Error(`${one.name}: ${response.status}`);
          const path = join(folder, `${one.name}.prom`);
          writeFileSync(path, await response.text());
          return { ...one, path };
        }),
      );
      return await runScript(context, {
        script: "metrics/read_metrics.py",
        case: "metrics/prometheus_client",
        args: [JSON.stringify(scraped)],
      });
    } finally {
      await node.stop();
      await services.stop();
    }
  },
};
