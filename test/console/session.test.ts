// Sessions of the console: whose cookie is taken, and whose forms.

import { describe, expect, it } from "vitest";
import {
  beginSession,
  formToken,
  isFormToken,
  readNotice,
  readSession,
  SESSION_MS,
  type Session,
  writeNotice,
} from "../../edge/console/session.ts";
import { Secret } from "../../shared/secret.ts";

const ada = { name: "ada", token: new Secret("the token of ada") };
const operators = [{ name: "operator", token: new Secret("the operator token") }, ada];
const NOW = Date.UTC(2026, 10, 1);
const begin = async () => {
  const cookie = await beginSession(ada, NOW);
  return { cookie, session: (await readSession(operators, cookie, NOW)) as Session };
};

describe("a session", () => {
  it("holds for its time and not a moment longer", async () => {
    const { cookie, session } = await begin();
    expect(session).toMatchObject({ until: NOW + SESSION_MS, operator: ada });
    expect(await readSession(operators, cookie, session.until - 1)).toEqual(session);
    expect(await readSession(operators, cookie, session.until)).toBeNull();
  });

  it("names its operator, ends with their token, and never holds it", async () => {
    const { cookie } = await begin();
    const renewed = [...operators.slice(0, 1), { ...ada, token: new Secret("another") }];
    expect(await readSession(renewed, cookie, NOW)).toBeNull();
    expect(await readSession(operators.slice(0, 1), cookie, NOW)).toBeNull();
    expect(cookie).not.toContain(ada.token.reveal());
  });

  it("cannot be made longer, changed or made up", async () => {
    const { cookie, session } = await begin();
    const [id = "", until = "", name = "", signature = ""] = cookie.split(".");
    const forged = [
      `${id}.${Number(until) + 1}.${name}.${signature}`,
      `${crypto.randomUUID()}.${until}.${name}.${signature}`,
      `${id}.${until}.operator.${signature}`,
      `${id}.${until}.nobody.${signature}`,
      `${id}.${until}.${name}.`,
      `${id}.${until}.${name}.%%%`,
      `${id}.${until}.${name}.${await formToken(session)}`,
      "",
    ];
    for (const one of forged)
      expect([one, await readSession(operators, one, NOW)]).toEqual([one, null]);
    expect(await readSession(operators, undefined, NOW)).toBeNull();
  });
});

describe("a form's token", () => {
  it("is taken from its own session alone", async () => {
    const [mine, other] = [await begin(), await begin()];
    const given = await formToken(mine.session);
    expect(await isFormToken(mine.session, given)).toBe(true);
    expect(await isFormToken(other.session, given)).toBe(false);
    for (const bad of ["", `${given}x`, mine.cookie]) {
      expect(await isFormToken(mine.session, bad)).toBe(false);
    }
  });
});

describe("a notice", () => {
  it("is shown to the session it was written for, in any script, and to no other", async () => {
    const [mine, other] = [await begin(), await begin()];
    const notice = { kind: "done" as const, text: "Ça marche, 日本" };
    const cookie = await writeNotice(mine.session, notice);
    expect(await readNotice(mine.session, cookie)).toEqual(notice);
    expect(await readNotice(other.session, cookie)).toBeNull();
    expect(await readNotice(mine.session, "x.y")).toBeNull();
    expect(await readNotice(mine.session, undefined)).toBeNull();
  });
});
