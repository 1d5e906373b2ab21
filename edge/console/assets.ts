// What browsers load beside the pages: style and scripts, each under a name that holds the digest
// of its content, so that it may be kept for ever.

import { createHash } from "node:crypto";
import chartPackage from "uplot/dist/uPlot.iife.min.js";
import chartStyle from "uplot/dist/uPlot.min.css";
import chart from "./client/chart.browser.js";
import parts from "./client/components.browser.css";
import style from "./client/console.browser.css";
import script from "./client/console.browser.js";
import monitor from "./client/monitor.browser.css";
import series from "./client/series.browser.css";
import states from "./client/states.browser.css";

interface Asset {
  path: string;
  type: string;
  text: string;
}

const asset = (name: string, ending: "css" | "js", text: string): Asset => ({
  path: `/assets/${name}.${createHash("sha256").update(text).digest("hex").slice(0, 16)}.${ending}`,
  type: `${ending === "css" ? "text/css" : "text/javascript"}; charset=utf-8`,
  text,
});

/** Every file that pages load; names change with content, so browsers may keep them for ever. */
export const ASSETS = {
  style: asset("console", "css", [style, states, parts, series, monitor].join("\n")),
  script: asset("console", "js", script),
  chart: asset("chart", "js", chart),
  chartPackage: asset("uplot", "js", chartPackage),
  chartStyle: asset("uplot", "css", chartStyle),
} as const;

/** The file of a path, or undefined where there is none. */
export const assetAt = (path: string): Asset | undefined =>
  Object.values(ASSETS).find((one) => one.path === path);
