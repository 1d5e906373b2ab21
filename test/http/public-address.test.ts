// Which addresses count as public, and which URLs may be sent to.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import {
  isPublicAddress,
  resolverAt,
  targetProblem,
  urlProblem,
} from "../../edge/http/public-address.ts";

/** By the registries of special-purpose addresses (RFC 6890 and its updates). */
const PRIVATE: readonly (readonly [kind: string, ...addresses: string[]])[] = [
  ["this network", "0.0.0.0", "0.1.2.3"],
  ["private", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"],
  ["shared by a carrier's NAT", "100.64.0.1", "100.127.255.255"],
  ["loopback", "127.0.0.1", "127.255.255.254", "::1"],
  ["link-local, the cloud's metadata", "169.254.169.254", "fe80::1", "febf::1"],
  ["protocol assignments", "192.0.0.1", "192.0.0.170"],
  ["documentation", "192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
  ["6to4 relays", "192.88.99.1", "2002:7f00:1::", "2002:808:808::1"],
  ["benchmarks", "198.18.0.1", "198.19.255.255", "2001:2::1"],
  ["multicast", "224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
  ["reserved", "240.0.0.1", "255.255.255.255"],
  ["unspecified", "::"],
  ["IPv4 within IPv6", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:a00:1", "::127.0.0.1"],
  ["translated by NAT64", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"],
  ["Teredo", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
  ["unique local", "fc00::1", "fd00:ec2::254"],
  ["once site-local", "fec0::1"],
  ["discard", "100::1"],
  ["segment routing", "5f00::1"],
  ["not assigned", "4000::1", "::2:3:4", "e000::1"],
  ["no address", "", "example.com", "1.2.3.4.5"],
];
const PUBLIC = ["8.8.8.8", "1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700::1111"];

describe("an address", () => {
  it.each(PRIVATE)("that is %s is not public", (_, ...addresses) => {
    expect(addresses.filter(isPublicAddress)).toEqual([]);
  });

  it("of the internet is public", () => {
    expect(PUBLIC.filter(isPublicAddress)).toEqual(PUBLIC);
  });
});

describe("a URL", () => {
  it.each([
    "https://127.0.0.1/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://017700000001/",
    "https://127.1/",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[fd00::1]:8443/x",
    "https://１２７.0.0.1/",
  ])("with an address that is not public is refused however it is spelled: %s", async (url) => {
    expect(await targetProblem(url, async () => ["8.8.8.8"])).toBe("is not public");
  });

  it.each([
    ["http://example.com/", "does not begin with https://"],
    ["ftp://example.com/", "does not begin with https://"],
    ["https://user:hunter2@example.com/", "holds credentials"],
    ["example.com", "is no URL"],
  ])("is refused for its form: %s", async (url, problem) => {
    expect(await targetProblem(url, async () => ["8.8.8.8"])).toBe(problem);
  });

  it.each([
    [["8.8.8.8", "2606:4700::1111"], null],
    [["8.8.8.8", "10.0.0.1"], "leads to an address that is not public"],
    [["2606:4700::1111", "fd00::1"], "leads to an address that is not public"],
    [["metadata.internal"], "leads to an address that is not public"],
    [[], "has a name without addresses"],
  ])("is judged by every address of its name: %j", async (addresses, problem) => {
    const asked: string[] = [];
    const resolve = async (name: string) => {
      asked.push(name);
      return addresses;
    };
    expect(await targetProblem("https://example.com:8443/hook", resolve)).toBe(problem);
    expect(asked).toEqual(["example.com"]);
  });

  it("is refused where its name cannot be resolved", async () => {
    const broken = () => Promise.reject(new Error("no answer"));
    expect(await targetProblem("https://example.com/", broken)).toMatch(/could not be resolved/);
  });

  it("may be private and plain only where that is allowed", () => {
    const local = "http://127.0.0.1:9000/hook";
    expect(urlProblem(local, { allowPrivate: true })).toBeNull();
    expect(urlProblem(local, { allowPrivate: false })).not.toBeNull();
    expect(urlProblem("ftp://127.0.0.1/", { allowPrivate: true })).not.toBeNull();
    expect(urlProblem("http://user:x@127.0.0.1/", { allowPrivate: true })).not.toBeNull();
  });
});

it("a resolver over HTTPS gives the addresses of both kinds, and fails where it is not answered", async () => {
  const zone: Record<string, object> = {
    "A hooks.example.com": {
      Status: 0,
      Answer: [
        { name: "hooks.example.com", type: 5, TTL: 60, data: "edge.example.net." },
        { name: "edge.example.net", type: 1, TTL: 60, data: "8.8.8.8" },
      ],
    },
    "AAAA hooks.example.com": {
      Status: 0,
      Answer: [{ name: "edge.example.net", type: 28, TTL: 60, data: "2606:4700::1111" }],
    },
    "A nowhere.example": { Status: 3 },
    "AAAA nowhere.example": { Status: 3 },
  };
  const server = createServer(({ url, headers }, response) => {
    const query = new URL(url ?? "", "http://resolver").searchParams;
    const answer = zone[`${query.get("type")} ${query.get("name")}`];
    const isAsked = headers.accept === "application/dns-json" && answer;
    response.writeHead(isAsked ? 200 : 400).end(JSON.stringify(answer ?? {}));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const resolve = resolverAt(
    `http://127.0.0.1:${(server.address() as AddressInfo).port}/dns-query`,
  );
  expect(await resolve("hooks.example.com")).toEqual(["8.8.8.8", "2606:4700::1111"]);
  expect(await resolve("nowhere.example")).toEqual([]);
  await expect(resolve("other.example")).rejects.toThrow("answered 400");
  server.close();
});
