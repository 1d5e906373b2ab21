// What follows from a role, who may call what, and what a password may be: no service needed.

import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { COMMON_PASSWORDS } from "../../../edge/vision/auth/common-passwords.ts";
import {
  checkPassword,
  hashPassword,
  verifyPassword,
} from "../../../edge/vision/auth/passwords.ts";
import { allow, type Caller, workspacesOf } from "../../../edge/vision/auth/scope.ts";
import type { Failure } from "../../../shared/errors.ts";
import { ROLES } from "../../../shared/wire/vision.ts";

describe("roles", () => {
  it("each may what those before it may, in that workspace alone", () => {
    for (const [position, held] of ROLES.entries()) {
      const memberships = new Map([["here", held]]);
      const caller: Caller = {
        accountId: "a",
        email: "a",
        operator: false,
        session: "s",
        byCookie: false,
        apiToken: null,
        memberships,
      };
      for (const [needed, role] of ROLES.entries()) {
        const check = () => allow(caller, "here", role);
        if (needed <= position) expect(check).not.toThrow();
        else expect(check).toThrow(expect.objectContaining({ code: "forbidden" }) as Failure);
        expect(() => allow(caller, "elsewhere", role)).toThrow("nothing by this id");
        expect(workspacesOf(caller, role)).toEqual(needed <= position ? ["here"] : []);
      }
    }
  });
});

/** Who may call a route, by what its description says; the first that matches. */
const AUDIENCES: readonly (readonly [who: string, says: RegExp])[] = [
  ["anybody", /\bOpen: /],
  ["GPU nodes, by their own token", /\bFor GPU nodes\./],
  ["edge devices, by their own token", /\bFor edge devices\./],
  ["whoever is logged in", /\bFor everybody who is logged in\./],
  [
    "whoever is logged in, but no API token",
    /\bFor everybody who is logged in, but no API token\./,
  ],
  ["edge devices, by their own token, or an engineer", /\bSend the device's own token\./],
  ["viewer", /\bFor every member of the workspace/],
  ["annotator", /\bneeds the role annotator\b|\bfor annotators\b/i],
  ["engineer", /\bneeds the role engineer\b|\bfor engineers\b/i],
  ["admin", /\bneeds the role admin\b/i],
];

const README = resolve(import.meta.dirname, "../../../edge/vision/auth/README.md");
const GOLDEN = resolve(import.meta.dirname, "../../golden/openapi.vision.json");
const MARKED = /(?<=<!-- roles -->\n)[\s\S]*(?=<!-- \/roles -->)/;

/** The table of roles, a line for each audience with its routes. */
function rolesTable(): string {
  const { paths } = JSON.parse(readFileSync(GOLDEN, "utf8")) as {
    paths: Record<string, Record<string, { description?: string }>>;
  };
  const routes = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { description = "" }]) => ({
      route: `${method.toUpperCase()} ${path.replace("/api/v1", "")}`,
      who: AUDIENCES.find(([, says]) => says.test(description))?.[0],
    })),
  );
  expect(routes.filter(({ who }) => who === undefined)).toEqual([]);
  const lines = AUDIENCES.map(([who]) => {
    const own = routes.filter((one) => one.who === who).map(({ route }) => `\`${route}\``);
    return `| ${who} | ${own.join(" · ")} |\n`;
  });
  return `| Who | May call |\n|---|---|\n${lines.join("")}`;
}

describe("the page of accounts", () => {
  it("shows which role may call which route", () => {
    const text = readFileSync(README, "utf8");
    const table = rolesTable();
    if (process.env.GOLDEN) writeFileSync(README, text.replace(MARKED, table));
    else expect(MARKED.exec(text)?.[0]).toBe(table);
  });
});

describe("passwords", () => {
  it("blocks more than the 3,000 most common that fit the policy", () => {
    const fitting = [...COMMON_PASSWORDS].filter((password) => password.length >= 8);
    expect(fitting.length).toBeGreaterThanOrEqual(3_000);
    expect(fitting).toHaveLength(COMMON_PASSWORDS.size);
  });

  it.each(["password1234", "Password123!!", "qwerty12345!", "sunshine2024"])(
    "are refused where they are common ones with digits at the end: %s",
    (password) => {
      expect(() => checkPassword(password, "me@example.com")).toThrow(/most common/);
    },
  );

  it.each(["password of the gate", "sunshine-house-7", "zebra91quilt", "password123456789"])(
    "are taken where they are more than that: %s",
    (password) => {
      expect(() => checkPassword(password, "me@example.com")).not.toThrow();
    },
  );

  it("hash with a salt of their own, and verify in any of Unicode's spellings", async () => {
    const [one, two] = await Promise.all([hashPassword("Zo\u00eb's word"), hashPassword("same")]);
    expect(one.split("$")[4]).not.toBe(two.split("$")[4]);
    const matches = await verifyPassword("Zoe\u0308's word", one);
    expect(matches).toEqual({ matches: true, outdated: false });
    expect((await verifyPassword("another", one)).matches).toBe(false);
  });
});
