// What follows from a role, and what a password may be: no service needed.

import { describe, expect, it } from "vitest";
import { COMMON_PASSWORDS } from "../../edge/vision/auth/common-passwords.ts";
import { hashPassword, verifyPassword } from "../../edge/vision/auth/passwords.ts";
import { allow, type Caller, workspacesOf } from "../../edge/vision/auth/scope.ts";
import type { Failure } from "../../shared/errors.ts";
import { ROLES } from "../../shared/vision.ts";

describe("roles", () => {
  it("each may what those before it may, in that workspace alone", () => {
    for (const [place, held] of ROLES.entries()) {
      const memberships = new Map([["here", held]]);
      const caller: Caller = { accountId: "a", email: "a", session: "s", memberships };
      for (const [needed, role] of ROLES.entries()) {
        const check = () => allow(caller, "here", role);
        if (needed <= place) expect(check).not.toThrow();
        else expect(check).toThrow(expect.objectContaining({ code: "forbidden" }) as Failure);
        expect(() => allow(caller, "elsewhere", role)).toThrow("nothing by this id");
        expect(workspacesOf(caller, role)).toEqual(needed <= place ? ["here"] : []);
      }
    }
  });
});

describe("passwords", () => {
  it("blocks more than the 3,000 most common that fit the policy", () => {
    const fitting = [...COMMON_PASSWORDS].filter((password) => password.length >= 8);
    expect(fitting.length).toBeGreaterThanOrEqual(3_000);
    expect(fitting).toHaveLength(COMMON_PASSWORDS.size);
  });

  it("hash with a salt of their own, and verify in any of Unicode's spellings", async () => {
    const [one, two] = await Promise.all([hashPassword("Zo\u00eb's word"), hashPassword("same")]);
    expect(one.split("$")[4]).not.toBe(two.split("$")[4]);
    const matches = await verifyPassword("Zoe\u0308's word", one);
    expect(matches).toEqual({ matches: true, outdated: false });
    expect((await verifyPassword("another", one)).matches).toBe(false);
  });
});
