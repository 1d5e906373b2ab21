// The session of a browser: its cookie opens what a token opens, changes need the form token too,
// and pages of other sites can neither read nor change anything by it.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { cookieState } from "../../../edge/vision/auth/caller-state.ts";
import { stillWelcome } from "../../../edge/vision/auth/guests.ts";
import { API } from "../../../edge/vision/base/api.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { Secret } from "../../../shared/secret.ts";
import { DAY, MINUTE, systemClock } from "../../../shared/time.ts";
import { SignedInUser, TokenPair, User } from "../../../shared/wire/vision.ts";
import {
  askToSignIn,
  type Browser,
  browserAt,
  cookieIn,
  signIn,
  someCookie,
} from "../../support/browser-sessions.ts";
import { describeApi } from "../../support/common-routes.ts";
import { everything, type Ids } from "../../support/everything.ts";
import {
  ask,
  freshAddress,
  newTenant,
  PASSWORD,
  type Person,
  register,
} from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

const NEW_PASSWORD = "a new long password";
const ATTRIBUTES = ["HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=Strict", "Secure"];

let world: World;
let url: string;
let operator: Person;
/** Admin of a workspace that has one of everything. */
let owner: Person;
let ids: Ids;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  url = world.urls.vision;
  operator = await register(url);
  const tenant = await newTenant(url, operator, "admin");
  owner = tenant.member;
  ids = await everything(world, tenant);
});

const statusOf = async (browser: Browser, path = "/auth/me") =>
  (await browser.ask("GET", path)).status;
const refusal = ({ status, body }: { status: number; body: Record<string, unknown> }) => [
  status,
  body.code,
];
const FORM_REFUSED = [403, "form_refused"];
const UNAUTHORIZED = [401, "unauthorized"];

/** Moves the end of a person's sessions to so many days from now. */
const endsIn = (person: Pick<Person, "id">, days: number) =>
  world.visionDatabase.execute(sql`
    UPDATE refresh_token SET expires_at = now() + ${days}::int * interval '1 day'
     WHERE account_id = ${person.id}::uuid`);
const daysLeft = async ({ id }: Pick<Person, "id">) => {
  const { rows } = await world.visionDatabase.execute<{ days: number }>(sql`
    SELECT round(extract(epoch FROM max(expires_at) - now()) / 86400)::int AS days
      FROM refresh_token WHERE account_id = ${id}::uuid`);
  return rows[0]?.days;
};

describe("POST /auth/session", () => {
  it("answers who signed in, and sets a cookie that scripts cannot read", async () => {
    const reply = await askToSignIn(url, owner);
    expect(reply.status).toBe(201);
    expect(User.parse(reply.body)).toEqual(User.parse((await owner.ask("GET", "/auth/me")).body));
    const cookie = cookieIn(reply);
    expect(cookie?.attributes).toEqual(ATTRIBUTES);
    expect(cookie?.value).toMatch(/^[\w-]{43}$/);
    expect(JSON.stringify(reply.body)).not.toContain(cookie?.value);
  });

  it("keeps the secret readable neither in the database nor in the log", async () => {
    const { secret } = await signIn(url, owner);
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT encode(hash, 'escape') AS hash, encode(hash, 'hex') AS hex FROM refresh_token`);
    for (const text of [JSON.stringify(rows), world.logs.join("\n")]) {
      expect(text).not.toContain(secret);
    }
  });

  it("refuses a wrong password and an unknown email alike, without a cookie", async () => {
    const wrong = await askToSignIn(url, { email: owner.email, password: "not it, I guess" });
    const unknown = await askToSignIn(url, { email: "nobody@example.com" });
    for (const reply of [wrong, unknown]) {
      expect(refusal(reply)).toEqual([401, "bad_credentials"]);
      expect(cookieIn(reply)).toBeNull();
    }
    expect(wrong.body.detail).toBe(unknown.body.detail);
  });

  it("counts wrong passwords together with those of /auth/login", async () => {
    const { email } = await register(url);
    const headers = { "CF-Connecting-IP": freshAddress() };
    const password = "not it, I guess";
    const login = () => ask(url, "POST", "/auth/login", { body: { email, password }, headers });
    const statuses: number[] = [];
    for (let turn = 0; turn < 3; turn++) {
      statuses.push((await login()).status);
      statuses.push((await askToSignIn(url, { email, password }, headers)).status);
    }
    expect(statuses).toEqual([401, 401, 401, 401, 401, 429]);
    expect((await login()).status).toBe(429);
  });

  it("takes no form of another site, whose type is no JSON", async () => {
    const body = JSON.stringify({ email: owner.email, password: PASSWORD });
    for (const type of ["text/plain", "application/x-www-form-urlencoded"]) {
      const headers = { "Content-Type": type, "CF-Connecting-IP": freshAddress() };
      const reply = await ask(url, "POST", "/auth/session", { body, headers });
      expect([type, reply.status, cookieIn(reply)]).toEqual([type, 400, null]);
    }
  });

  it("replaces the session that the browser had", async () => {
    const before = await signIn(url, owner);
    expect(await statusOf(before)).toBe(200);
    const body = { email: owner.email, password: PASSWORD };
    const reply = await before.ask("POST", "/auth/session", body, {});
    expect(reply.status).toBe(201);
    const { form_token } = SignedInUser.parse(reply.body);
    const after = browserAt(url, cookieIn(reply)?.value ?? "", form_token ?? "");
    expect([await statusOf(before), await statusOf(after)]).toEqual([401, 200]);
    expect(after.formToken).not.toBe(before.formToken);
  });
});

describe("a browser's cookie", () => {
  it("opens what a token opens, and tells the form token", async () => {
    const browser = await signIn(url, owner);
    const own = SignedInUser.parse((await browser.ask("GET", "/auth/me")).body);
    expect(own).toMatchObject({ id: owner.id, form_token: browser.formToken });
    expect((await owner.ask("GET", "/auth/me")).body.form_token).toBeNull();
    for (const path of [`/projects/${ids.project_id}`, `/jobs/${ids.job_id}`, "/admin/users"]) {
      const [byCookie, byToken] = [await browser.ask("GET", path), await owner.ask("GET", path)];
      expect([path, byCookie.status, byCookie.body]).toEqual([path, 200, byToken.body]);
    }
    const others = await register(url);
    expect(await statusOf(await signIn(url, others), `/projects/${ids.project_id}`)).toBe(404);
  });

  it("loads images", async () => {
    await world.media.put(`ws/${ids.workspace_id}/videos/${ids.video_id}/thumb`, "JPEG");
    await world.visionDatabase.execute(sql`
      UPDATE video SET thumbnail_key = ${`ws/${ids.workspace_id}/videos/${ids.video_id}/thumb`}
       WHERE id = ${ids.video_id ?? ""}::uuid`);
    const path = `/videos/${ids.video_id}/thumbnail.jpg`;
    expect((await owner.ask("GET", path)).status).toBe(200);
    const browser = await signIn(url, owner);
    await endsIn(owner, 28);
    const image = await browser.ask("GET", path, undefined, { "Sec-Fetch-Site": "same-origin" });
    expect([image.status, image.headers.get("Content-Type"), image.body]).toEqual([
      ...[200, "image/jpeg"],
      { text: "JPEG" },
    ]);
    // Its use is a use of the session.
    expect(cookieIn(image)).toEqual({ value: browser.secret, attributes: ATTRIBUTES });
    expect((await ask(url, "GET", path)).status).toBe(401);
  });

  it.each(["Bearer wrong", "Bearer", "Basic eDp5"])(
    "helps no header that is sent and invalid: %j",
    async (Authorization) => {
      const browser = await signIn(url, owner);
      const reply = await browser.ask("GET", "/auth/me", undefined, { Authorization });
      expect(refusal(reply)).toEqual(UNAUTHORIZED);
    },
  );

  it("stands back behind a valid token, which needs no form token", async () => {
    const browser = await signIn(url, owner);
    const headers = { Authorization: `Bearer ${operator.tokens.access_token}` };
    const reply = await browser.ask("GET", "/auth/me", undefined, headers);
    expect(reply.body).toMatchObject({ id: operator.id, form_token: null });
    const made = await browser.ask("POST", "/projects", { name: "x" }, headers);
    expect(made.status).toBe(201);
  });

  it("opens nothing as a token, and no token opens anything as a cookie", async () => {
    const { secret } = await signIn(url, owner);
    const headers = { Authorization: `Bearer ${secret}` };
    expect(refusal(await ask(url, "GET", "/auth/me", { headers }))).toEqual(UNAUTHORIZED);
    for (const rotate of [false, true]) {
      const body = { refresh_token: secret, rotate };
      expect(refusal(await ask(url, "POST", "/auth/refresh", { body }))).toEqual(UNAUTHORIZED);
    }
    const { refresh_token, access_token } = owner.tokens;
    for (const token of [refresh_token, access_token, "", "x; y", "é"]) {
      const cookie = encodeURIComponent(token);
      expect([token, await statusOf(browserAt(url, cookie, ""))]).toEqual([token, 401]);
    }
    const unknown = { headers: { Cookie: someCookie() } };
    expect(refusal(await ask(url, "GET", "/auth/me", unknown))).toEqual(UNAUTHORIZED);
  });

  it("is one session in every tab", async () => {
    const first = await signIn(url, owner);
    const { form_token } = SignedInUser.parse((await first.ask("GET", "/auth/me")).body);
    const second = browserAt(url, first.secret, form_token ?? "");
    const made = await Promise.all(
      [first, second].map((tab) => tab.ask("POST", "/projects", { name: "x" })),
    );
    expect(made.map(({ status }) => status)).toEqual([201, 201]);
    expect((await first.ask("DELETE", "/auth/session")).status).toBe(204);
    expect(await statusOf(second)).toBe(401);
  });

  it("has the rights that its owner has by now", async () => {
    const { member } = await newTenant(url, operator, "viewer");
    const browser = await signIn(url, member);
    const invite = () => browser.ask("POST", "/admin/invitations", {});
    expect(refusal(await invite())).toEqual([403, "forbidden"]);
    const { body } = await member.ask("GET", "/auth/me");
    const [{ workspace_id = "" } = {}] = User.parse(body).workspaces;
    await operator.ask("PATCH", `/admin/users/${member.id}`, { workspace_id, role: "admin" });
    expect((await invite()).status).toBe(201);
  });

  it("writes audit entries, makes API tokens, and opens live progress", async () => {
    const browser = await signIn(url, owner);
    const made = await browser.ask("POST", "/admin/workspaces", { name: "by cookie" });
    expect(made.status).toBe(201);
    const path = `/admin/audit?workspace_id=${made.body.workspace_id}`;
    expect(JSON.stringify((await browser.ask("GET", path)).body)).toContain(owner.id);
    const token = await browser.ask("POST", "/auth/tokens", { name: "x", role: "viewer" });
    expect(token.status).toBe(201);
    const ticket = await browser.ask("POST", `/jobs/${ids.job_id}/ticket`);
    expect(ticket.status).toBe(200);
    const opened = await new Promise<boolean>((done) => {
      const socket = new WebSocket(new URL(String(ticket.body.url), url))
        .on("open", () => {
          socket.close();
          done(true);
        })
        .on("error", () => done(false));
    });
    expect(opened).toBe(true);
  });

  it("counts wrong passwords for its session", async () => {
    const browser = await signIn(url, await register(url));
    const statuses: number[] = [];
    for (let turn = 0; turn < 6; turn++) {
      const reply = await browser.ask("POST", "/auth/me/delete", { password: "not it, I guess" });
      statuses.push(reply.status);
    }
    expect(statuses).toEqual([401, 401, 401, 401, 401, 429]);
  });
});

describe("a change by cookie", () => {
  it("needs the session's own form token, on every route", async () => {
    const browser = await signIn(url, owner);
    const other = await signIn(url, owner);
    const { paths } = await describeApi(url);
    const changes = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods)
        .filter(([method, { security = [] }]) => {
          const isByCookie = security.some((one) => "sessionCookie" in (one as object));
          return isByCookie && method !== "get";
        })
        .map(([method]) => [method.toUpperCase(), path.slice(API.length)] as const),
    );
    expect(changes.length).toBeGreaterThan(100);
    for (const [method, path] of changes) {
      const full = path.replace(/\{\w+\}/g, () => crypto.randomUUID());
      const reply = await browser.ask(method, full, undefined, {});
      expect([method, path, ...refusal(reply)]).toEqual([method, path, ...FORM_REFUSED]);
    }
    const make = (headers: Record<string, string>, name = "forged") =>
      browser.ask("POST", "/projects", { name }, headers);
    for (const token of [other.formToken, `${browser.formToken}x`, browser.secret, ""]) {
      expect(refusal(await make({ "X-Form-Token": token }))).toEqual(FORM_REFUSED);
    }
    expect(JSON.stringify((await owner.ask("GET", "/projects")).body)).not.toContain("forged");
    expect((await make({ "X-Form-Token": browser.formToken }, "x")).status).toBe(201);
  });
});

describe("a page of another site", () => {
  const sites = ["cross-site", "same-site"];

  it.each(sites)("reads and changes nothing by the cookie: %s", async (site) => {
    const browser = await signIn(url, owner);
    const foreign = { "Sec-Fetch-Site": site, Origin: "https://elsewhere.example" };
    await endsIn(owner, 28);
    for (const path of ["/auth/me", `/videos/${ids.video_id}/thumbnail.jpg`]) {
      const reply = await browser.ask("GET", path, undefined, foreign);
      expect([path, ...refusal(reply), cookieIn(reply)]).toEqual([path, ...UNAUTHORIZED, null]);
    }
    // Nor does it keep the session alive.
    expect(await daysLeft(owner)).toBe(28);
    const form = { ...foreign, "X-Form-Token": browser.formToken };
    const made = await browser.ask("POST", "/projects", { name: "forged" }, form);
    expect(refusal(made)).toEqual(FORM_REFUSED);
    expect(refusal(await browser.ask("DELETE", "/auth/session", undefined, form))).toEqual(
      FORM_REFUSED,
    );
    expect(refusal(await askToSignIn(url, owner, foreign))).toEqual(FORM_REFUSED);
    expect(JSON.stringify((await owner.ask("GET", "/projects")).body)).not.toContain("forged");
    expect(await statusOf(browser)).toBe(200);
  });

  it("is given no answer to read, and may not ask what a form cannot", async () => {
    const browser = await signIn(url, owner);
    const Origin = "https://elsewhere.example";
    const preflight = (method: string) => ({
      Origin,
      "Access-Control-Request-Method": method,
      "Access-Control-Request-Headers": "x-form-token,content-type",
    });
    const replies = [
      await browser.ask("OPTIONS", "/auth/session", undefined, preflight("POST")),
      await browser.ask("OPTIONS", "/auth/session", undefined, preflight("DELETE")),
      await browser.ask("OPTIONS", "/projects", undefined, preflight("POST")),
      await browser.ask("GET", "/auth/me", undefined, { Origin }),
      await browser.ask("GET", "/projects", undefined, { Origin }),
    ];
    for (const { headers } of replies) {
      expect([...headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
    }
  });

  it("is none where the person opens an address, or a page of ours asks", async () => {
    const browser = await signIn(url, owner);
    for (const site of ["none", "same-origin"]) {
      const headers = { "Sec-Fetch-Site": site };
      expect((await browser.ask("GET", "/auth/me", undefined, headers)).status).toBe(200);
    }
  });
});

describe("a browser's session ends", () => {
  const REMOVED = ATTRIBUTES.map((one) => (one.startsWith("Max-Age") ? "Max-Age=0" : one));

  it("by DELETE /auth/session, which removes the cookie and may be repeated", async () => {
    const browser = await signIn(url, owner);
    const without = await browser.ask("DELETE", "/auth/session", undefined, {});
    expect(refusal(without)).toEqual(FORM_REFUSED);
    expect(await statusOf(browser)).toBe(200);
    for (let turn = 0; turn < 2; turn++) {
      const reply = await browser.ask("DELETE", "/auth/session");
      expect([reply.status, cookieIn(reply)]).toEqual([204, { value: "", attributes: REMOVED }]);
      expect(await statusOf(browser)).toBe(401);
    }
    const nobody = await ask(url, "DELETE", "/auth/session");
    expect([nobody.status, cookieIn(nobody)?.attributes]).toEqual([204, REMOVED]);
  });

  it.each([{}, { everywhere: true }])("by POST /auth/logout with %j", async (body) => {
    const person = await register(url);
    const [browser, another] = [await signIn(url, person), await signIn(url, person)];
    expect(await statusOf(another)).toBe(200);
    expect((await browser.ask("POST", "/auth/logout", body)).status).toBe(204);
    expect(await statusOf(browser)).toBe(401);
    expect(await statusOf(another)).toBe("everywhere" in body ? 401 : 200);
  });

  it.each([
    ["a new password", "POST", "/auth/password"],
    ["the account's deletion", "POST", "/auth/me/delete"],
  ])("by %s", async (_, method, path) => {
    const person = await register(url);
    const [browser, another] = [await signIn(url, person), await signIn(url, person)];
    expect(await statusOf(another)).toBe(200);
    const body = path.endsWith("delete")
      ? { password: PASSWORD }
      : { current_password: PASSWORD, new_password: NEW_PASSWORD };
    expect((await browser.ask(method, path, body)).status).toBeLessThan(300);
    expect([await statusOf(browser), await statusOf(another)]).toEqual([401, 401]);
  });

  it("by a password that was reset, and by an operator who deletes the account", async () => {
    const person = await register(url);
    const browser = await signIn(url, person);
    expect(await statusOf(browser)).toBe(200);
    const { body } = await operator.ask("POST", `/admin/users/${person.id}/password-reset`);
    const reset = { code: body.code, password: NEW_PASSWORD };
    expect((await ask(url, "POST", "/auth/password-reset", { body: reset })).status).toBe(204);
    expect(await statusOf(browser)).toBe(401);
    const again = await signIn(url, { email: person.email, password: NEW_PASSWORD });
    expect(await statusOf(again)).toBe(200);
    expect((await operator.ask("DELETE", `/admin/users/${person.id}`)).status).toBe(204);
    expect(await statusOf(again)).toBe(401);
  });

  it("with what its tickets opened", async () => {
    const person = await register(url);
    const browser = await signIn(url, person);
    const { body } = await browser.ask("GET", "/auth/me");
    const workspaceId = User.parse(body).workspaces[0]?.workspace_id ?? "";
    const { rows } = await world.visionDatabase.execute<{ session: string }>(sql`
      SELECT family::text AS session FROM refresh_token WHERE account_id = ${person.id}::uuid
       ORDER BY created_at DESC LIMIT 1`);
    const guest = { accountId: person.id, session: rows[0]?.session ?? "", workspaceId };
    expect(await stillWelcome(world.visionDatabase, [guest])).toEqual([guest]);
    await browser.ask("DELETE", "/auth/session");
    expect(await stillWelcome(world.visionDatabase, [guest])).toEqual([]);
  });

  it("after 30 days without a use; a use moves the end, by one write a day", async () => {
    const person = await register(url);
    const browser = await signIn(url, person);
    expect(await daysLeft(person)).toBe(30);
    const seen = await browser.ask("GET", "/auth/me");
    expect([seen.status, cookieIn(seen)]).toEqual([200, null]);
    const later = await signIn(url, person);
    await endsIn(person, 28);
    const used = await later.ask("GET", "/auth/me");
    expect(cookieIn(used)).toEqual({ value: later.secret, attributes: ATTRIBUTES });
    expect(await daysLeft(person)).toBe(30);
    expect(cookieIn(await later.ask("GET", "/auth/me"))).toBeNull();
    const unused = await signIn(url, person);
    await endsIn(person, -1);
    expect(await statusOf(unused)).toBe(401);
  });

  it("within a minute everywhere, by the service's clock", async () => {
    const person = await register(url);
    const { secret } = await signIn(url, person);
    let now = systemClock();
    const parts = {
      database: world.visionDatabase,
      tokenSecret: new Secret("another isolate"),
      clock: () => now,
      // What is looked up of a cookie uses no other part.
    } as unknown as Parts;
    const start = now;
    const at = async (milliseconds: number) => {
      now = start + milliseconds;
      const state = await cookieState(parts, secret);
      return state && { extended: state.extended };
    };
    expect(await at(0)).toEqual({ extended: false });
    expect(await at(DAY - MINUTE)).toEqual({ extended: false });
    expect(await at(DAY + MINUTE)).toEqual({ extended: true });
    expect(await at(DAY + 2 * MINUTE)).toEqual({ extended: false });
    // Unused since then for the whole time, and a moment less.
    expect(await at(31 * DAY)).toEqual({ extended: true });
    const end = 61 * DAY;
    expect(await at(end - 1)).toEqual({ extended: true });
    expect(await at(end + 30 * DAY)).toBeNull();
    expect(await at(end)).toEqual({ extended: false });
    await world.visionDatabase.execute(sql`
      UPDATE refresh_token SET revoked_at = now() WHERE account_id = ${person.id}::uuid`);
    expect(await at(end - 1 + MINUTE - 1)).toEqual({ extended: false });
    expect(await at(end - 1 + MINUTE)).toBeNull();
  });
});

it("opens none for a password that was changed since it was read", async () => {
  const person = await register(url);
  const body = { current_password: PASSWORD, new_password: NEW_PASSWORD };
  const replies = await Promise.all([
    person.ask("POST", "/auth/password", body),
    ...Array.from({ length: 3 }, () => askToSignIn(url, person)),
  ]);
  TokenPair.parse(replies[0]?.body);
  for (const reply of replies.slice(1)) {
    const cookie = cookieIn(reply)?.value;
    if (cookie === undefined) expect(reply.status).toBe(401);
    else expect(await statusOf(browserAt(url, cookie, ""))).toBe(401);
  }
});
