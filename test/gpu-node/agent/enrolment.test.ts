// Whose a device's folder is: what a device before it left there is no other's, wherever it was cut
// off while that was moved away.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import {
  readEnrolment,
  replaceEnrolment,
  writeEnrolment,
} from "../../../gpu-node/agent/enrolment.ts";
import { Secret } from "../../../shared/secret.ts";

const root = mkdtempSync(join(tmpdir(), "vantage-enrolment-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const URL = "https://vision.example.com";
const enrolment = () => ({
  deviceId: crypto.randomUUID(),
  token: new Secret("vdt_t"),
  tokenSince: 0,
  intervalSeconds: 60,
  keys: [],
});

/** A folder that a device worked in. */
function worked(name: string): string {
  const dir = join(root, name);
  mkdirSync(join(dir, "slots"), { recursive: true });
  mkdirSync(join(dir, "logs"));
  writeFileSync(join(dir, "logs", "cursor.json"), name);
  writeFileSync(join(dir, "slots", "a.onnx"), name);
  writeFileSync(join(dir, "state.json"), name);
  return dir;
}
const left = (dir: string) =>
  ["logs", "slots", "state.json"].filter((name) => existsSync(join(dir, name)));

it("sets the log and the state of a former device aside", () => {
  const dir = worked("replaced");
  const one = enrolment();
  replaceEnrolment(dir, URL, one);
  expect(left(dir)).toEqual([]);
  expect(readFileSync(join(dir, "former", "logs", "cursor.json"), "utf8")).toBe("replaced");
  // What this device makes then is its own, at each start.
  mkdirSync(join(dir, "logs"));
  expect(readEnrolment(dir, URL)?.deviceId).toBe(one.deviceId);
  expect(left(dir)).toEqual(["logs"]);
  expect(readEnrolment(dir, "https://other.example.com")).toBeNull();
});

it("goes on with it after a cut", () => {
  const dir = worked("cut");
  const one = enrolment();
  writeEnrolment(dir, URL, one, true);
  expect(readEnrolment(dir, URL)?.deviceId).toBe(one.deviceId);
  expect(left(dir)).toEqual([]);
  mkdirSync(join(dir, "logs"));
  expect(readEnrolment(dir, URL)?.deviceId).toBe(one.deviceId);
  expect(left(dir)).toEqual(["logs"]);
});
