// How a device is configured: what is not said has its default, what is wrong is named.

import { expect, it } from "vitest";
import { parseDeviceConfig } from "../../../gpu-node/agent/device-config.ts";

const VANTAGE_URL = "https://vision.example.com";
const images = (more: Record<string, string>) => parseDeviceConfig({ VANTAGE_URL, ...more }).images;

it("sends no image along unless it is told of which confidences", () => {
  const bounds = { secondsApart: 300, bytesMax: 64 * 1024 ** 2 };
  expect(images({})).toEqual({ uncertain: null, ...bounds });
  const uncertain = { from: 0.3, below: 0.65 };
  expect(images({ VANTAGE_DEVICE_UNCERTAIN: "0.3-0.65" })).toEqual({ uncertain, ...bounds });
});

it.each([...["0.6-0.3", "0.5-0.5", "0.5", "-0.5", "0.5-1.5", "0.3 - 0.6", "low-high"]])(
  "refuses %s as a range of confidences, and says which key is wrong",
  (range) => {
    expect(() => images({ VANTAGE_DEVICE_UNCERTAIN: range })).toThrow(/VANTAGE_DEVICE_UNCERTAIN/);
  },
);
