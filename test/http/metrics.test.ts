// The text that Prometheus scrapes.

import { expect, it } from "vitest";
import { metricsText } from "../../edge/http/metrics.ts";
import { readExposition } from "../support/exposition.ts";

it("metrics are announced and escaped, whatever labels and values there are", () => {
  const text = metricsText([
    {
      name: "a_total",
      help: "One \\ line\nand another.",
      type: "counter",
      samples: [{ value: 3 }],
    },
    {
      name: "b",
      help: "Labels.",
      type: "gauge",
      samples: [
        { labels: { job: 'q"uo\\te\n', state: "é" }, value: 1.5 },
        { labels: { job: "x", state: "y" }, value: 1e21 },
        { labels: { job: "x", state: "z" }, value: -Infinity },
        { labels: {}, value: Number.NaN },
      ],
    },
    { name: "c", help: "None.", type: "gauge", samples: [] },
  ]);
  expect(text).toBe(`# HELP a_total One \\\\ line\\nand another.
# TYPE a_total counter
a_total 3
# HELP b Labels.
# TYPE b gauge
b{job="q\\"uo\\\\te\\n",state="é"} 1.5
b{job="x",state="y"} 1e+21
b{job="x",state="z"} -Inf
b NaN
# HELP c None.
# TYPE c gauge
`);
  expect([...readExposition(text).keys()]).toEqual(["a_total", "b", "c"]);
});
