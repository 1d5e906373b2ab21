// The text that Prometheus scrapes.

import { expect, it } from "vitest";
import { metricsText } from "../../shared/metrics.ts";
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

it("histograms are told as buckets that hold all below them, their sum and their count", () => {
  const text = metricsText([
    {
      name: "d_seconds",
      help: "How long.",
      type: "histogram",
      bounds: [0.1, 1],
      samples: [
        { labels: { route: "/x" }, counts: [2, 0, 1], sum: 7.5 },
        { counts: [0, 1, 0], sum: 0.5 },
      ],
    },
  ]);
  expect(text).toBe(`# HELP d_seconds How long.
# TYPE d_seconds histogram
d_seconds_bucket{route="/x",le="0.1"} 2
d_seconds_bucket{route="/x",le="1"} 2
d_seconds_bucket{route="/x",le="+Inf"} 3
d_seconds_sum{route="/x"} 7.5
d_seconds_count{route="/x"} 3
d_seconds_bucket{le="0.1"} 0
d_seconds_bucket{le="1"} 1
d_seconds_bucket{le="+Inf"} 1
d_seconds_sum 0.5
d_seconds_count 1
`);
  expect(readExposition(text).get("d_seconds_count")?.samples.get('route="/x"')).toBe(3);
});

it.each([
  ["a bucket that falls", 'd_bucket{le="1"} 2\nd_bucket{le="+Inf"} 1\nd_sum 1\nd_count 1\n'],
  ["no infinite bucket", 'd_bucket{le="1"} 2\nd_sum 1\nd_count 2\n'],
  ["another count", 'd_bucket{le="+Inf"} 2\nd_sum 1\nd_count 3\n'],
  ["no sum", 'd_bucket{le="+Inf"} 2\nd_count 2\n'],
  ["a bare value", "d 2\n"],
])("the reader refuses a histogram with %s", (_, samples) => {
  expect(() => readExposition(`# HELP d D.\n# TYPE d histogram\n${samples}`)).toThrow();
});
