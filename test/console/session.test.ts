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

const token = new Secret("the operator token");
const NOW = Date.UTC(2026, 10, 1);
const begin = async () => {
  const cookie = await beginSession(token, NOW);
  return { cookie, session: (await readSession(token, cookie, NOW)) as Session };
};

describe("a session", () => {
  it("holds for its time and not a moment longer", async () => {
    const { cookie, session } = await begin();
    expect(session.until).toBe(NOW + SESSION_MS);
    expect(await readSession(token, cookie, session.until - 1)).toEqual(session);
    expect(await readSession(token, cookie, session.until)).toBeNull();
  });

  it("ends with the operator token, and never holds it", async () => {
    const { cookie } = await begin();
    expect(await readSession(new Secret("another"), cookie, NOW)).toBeNull();
    expect(cookie).not.toContain(token.reveal());
  });

  it("cannot be made longer, changed or made up", async () => {
    const { cookie, session } = await begin();
    const [id = "", until = "", signature = ""] = cookie.split(".");
    const forged = [
      `${id}.${Number(until) + 1}.${signature}`,
      `${crypto.randomUUID()}.${until}.${signature}`,
      `${id}.${until}.`,
      `${id}.${until}.%%%`,
      `${id}.${until}.${await formToken(token, session)}`,
      "",
    ];
    for (const one of forged)
      expect([one, await readSession(token, one, NOW)]).toEqual([one, null]);
    expect(await readSession(token, undefined, NOW)).toBeNull();
  });
});

describe("a form's token", () => {
  it("is taken from its own session alone", async () => {
    const [mine, other] = [await begin(), await begin()];
    const given = await formToken(token, mine.session);
    expect(await isFormToken(token, mine.session, given)).toBe(true);
    expect(await isFormToken(token, other.session, given)).toBe(false);
    for (const bad of ["", `${given}x`, mine.cookie]) {
      expect(await isFormToken(token, mine.session, bad)).toBe(false);
    }
  });
});

describe("a notice", () => {
  it("is shown to the session it was written for, in any script, and to no other", async () => {
    const [mine, other] = [await begin(), await begin()];
    const notice = { kind: "done" as const, text: "Ça marche, 日本" };
    const cookie = await writeNotice(token, mine.session, notice);
    expect(await readNotice(token, mine.session, cookie)).toEqual(notice);
    expect(await readNotice(token, other.session, cookie)).toBeNull();
    expect(await readNotice(token, mine.session, "x.y")).toBeNull();
    expect(await readNotice(token, mine.session, undefined)).toBeNull();
  });
});
