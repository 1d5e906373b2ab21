// What both logs hide, whatever they are given: secrets by the names of their fields, within
// addresses and authorization values, at any depth, in errors and their causes.

import { afterEach, describe, expect, it, vi } from "vitest";
import { createLog as createServiceLog } from "../../edge/http/log.ts";
import { createLog as createNodeLog, type Fields } from "../../gpu-node/base/log.ts";
import { createRedaction } from "../../shared/redaction.ts";
import { Secret } from "../../shared/secret.ts";

afterEach(() => vi.restoreAllMocks());

/** The line that each log writes of an event. */
const LOGS: Record<string, (fields: Fields) => string> = {
  "a service's log": (fields) => {
    let line = "";
    vi.spyOn(console, "log").mockImplementation((text: string) => {
      line = text;
    });
    createServiceLog("sample").info("event", fields);
    return line;
  },
  "the node's log": (fields) => {
    let line = "";
    createNodeLog((text) => {
      line = text;
    }).info("event", fields);
    return line;
  },
};

const NAMES = [
  ...["api_key", "apiKey", "API-KEY", "key", "weights_key", "node_token", "client_secret"],
  ...["password", "Authorization", "cookie", "X-Amz-Signature", "credentials"],
];
const PARAMETERS = ["api_key", "X-Amz-Signature", "X-Amz-Credential", "token", "sig", "password"];

describe.each(Object.entries(LOGS))("%s", (_name, write) => {
  it.each(NAMES)("hides the value of a field called %s, at any depth", (name) => {
    const inner = { [name]: "hunter2", list: [{ [name]: { deep: "hunter2" } }] };
    const line = write({ [name]: "hunter2", inner });
    expect(line).not.toContain("hunter2");
    expect(JSON.parse(line)).toMatchObject({
      [name]: "[redacted]",
      inner: { [name]: "[redacted]" },
    });
  });

  it("keeps what is no secret, in its place", () => {
    const fields = { tasks: 3, ok: true, nothing: null, list: [1, "two", { three: 3 }] };
    expect(JSON.parse(write(fields))).toMatchObject({ ...fields, event: "event", level: "info" });
  });

  it.each(PARAMETERS)("hides the parameter %s of any address, and of a path", (name) => {
    for (const address of ["https://h/p", "wss://h:1/p", "/p"]) {
      const line = write({ text: `GET ${address}?a=1&${name}=hunter2&b=2 failed` });
      expect(line).not.toContain("hunter2");
      expect(line).toContain("failed");
    }
  });

  it("hides the password within an address", () => {
    const line = write({ text: "postgres://me:hunter2@host/db?sslmode=require" });
    expect(line).toContain("postgres://me:[redacted]@host/db");
    expect(line).not.toContain("hunter2");
  });

  it("hides authorization values of every scheme", () => {
    for (const scheme of ["Bearer", "basic", "ApiKey"]) {
      const line = write({ text: `sent ${scheme} aHVudGVyMg==.x-y` });
      expect(line).not.toContain("aHVudGVyMg");
    }
  });

  it("hides a wrapped secret under any name", () => {
    expect(write({ harmless: new Secret("hunter2") })).not.toContain("hunter2");
  });

  it("hides secrets in an error, its name, its code, its stack and its causes", () => {
    const cause = new Error("connect postgres://me:hunter2@host/db");
    const error = new Error("GET https://h/?token=hunter2", { cause });
    Object.assign(error, { code: "Bearer hunter2", token: "hunter2" });
    const named = Object.assign(new Error("refused"), { name: "basic hunter2" });
    const line = write({ error, list: [error, named] });
    expect(line).not.toContain("hunter2");
    expect(JSON.parse(line)).toMatchObject({
      error: { name: "Error", cause: { message: "connect postgres://me:[redacted]@host/db" } },
    });
  });

  it("cuts a failed statement's parameters, also those of a cause", () => {
    const failed = () => new Error("Failed query: INSERT ($1)\nparams: hunter2,row\nrow");
    const line = write({ error: new Error("outer", { cause: failed() }), list: [failed()] });
    expect(line).not.toMatch(/hunter2|row/);
  });

  it("hides secrets before it cuts a long text short", () => {
    const long = "x".repeat(3_980);
    const message = "x".repeat(1_980);
    const address = "postgres://me:hunter2-and-many-more-characters@host";
    expect(write({ text: long + address })).not.toContain("hunter2");
    expect(write({ error: new Error(message + address) })).not.toContain("hunter2");
  });

  it("takes as long as a text is, whatever the text is", () => {
    const began = performance.now();
    for (const part of ["a.", "a-", "?", "&", "://", "//a:", "basic "]) {
      write({ text: part.repeat(100_000) });
    }
    // Some milliseconds; a search that begins anew at every character takes minutes.
    expect(performance.now() - began).toBeLessThan(5_000);
  });

  it("writes values that contain themselves, and numbers that JSON lacks", () => {
    const ring: Record<string, unknown> = { name: "ring", token: "hunter2", count: 1n };
    ring.self = ring;
    const error = new Error("loop");
    error.cause = error;
    const line = write({ ring, twice: [ring, ring], error });
    expect(line).not.toContain("hunter2");
    expect(JSON.parse(line)).toMatchObject({
      ring: { name: "ring", count: "1", self: "[circular]" },
      twice: [{ name: "ring" }, { name: "ring" }],
    });
  });
});

describe("an address with a query", () => {
  const text = "https://h/object?X-Amz-Date=20260101T000000Z&a=1";

  it("loses all of it in the node's log, where a query is a permission", () => {
    expect(JSON.parse(LOGS["the node's log"]?.({ text }) ?? "")).toMatchObject({
      text: "https://h/object?[redacted]",
    });
  });

  it("loses it whatever the scheme, up to where the address ends", () => {
    const told = (text: string) => JSON.parse(LOGS["the node's log"]?.({ text }) ?? "").text;
    expect(told("s3://b/k?x=hunter2 failed")).toBe("s3://b/k?[redacted] failed");
    expect(told('"HTTPS://h/x?a=1?b" and https://h/y')).toBe(
      '"HTTPS://h/x?[redacted]" and https://h/y',
    );
    expect(told("what? https://h")).toBe("what? https://h");
    expect(told("/object?part=1")).toBe("/object?part=1");
  });

  it("keeps harmless parameters in a service's log", () => {
    expect(LOGS["a service's log"]?.({ text })).toContain("a=1");
  });
});

describe("an error's code", () => {
  it("stands in the field that each log has for it", () => {
    const error = Object.assign(new Error("no"), { code: "ENOENT" });
    for (const codeField of ["code", "error"] as const) {
      const redaction = createRedaction({ wholeQueries: true, codeField });
      expect(redaction.error(error)).toMatchObject({ [codeField]: "ENOENT" });
    }
  });
});
