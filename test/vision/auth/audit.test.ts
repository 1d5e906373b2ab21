// The log of what administrators did. Goal: every change that an admin makes leaves exactly one
// entry, by the right actor, of the right thing, or neither is there. Walks the service's own
// description, so that a new route of admins without an entry fails.

import { sql } from "drizzle-orm";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { AUDIT_ACTIONS } from "../../../edge/vision/auth/audit.ts";
import { API } from "../../../edge/vision/base/api.ts";
import { type AuditPage, rootOf } from "../../support/audit.ts";
import { describeApi } from "../../support/common-routes.ts";
import { type Change, fleetChanges } from "../../support/fleet-changes.ts";
import { CAPABILITIES } from "../../support/nodes.ts";
import { alertsTo, startReceiver } from "../../support/receiver.ts";
import { registerModel } from "../../support/registered-model.ts";
import { createTrainingWorld, type TrainingWorld } from "../../support/training-world.ts";
import { register } from "../../support/vision.ts";

const WEBHOOK_SECRET = "a webhook's secret of 30 signs";

let w: TrainingWorld;
/** The first of all: an operator, with the token that the training world's admin has. */
let workspaceId: string;
let videoId: string;
let stop: () => Promise<void>;
let root: pg.Client;

const database = () => w.world.visionDatabase;

beforeAll(async () => {
  const { url } = await startReceiver(WEBHOOK_SECRET);
  w = await createTrainingWorld(alertsTo(url, WEBHOOK_SECRET));
  const me = await w.admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  videoId = await w.video("crossing.mp4");
  // Opens models while the others' tasks wait.
  w.rival.script = { warm: () => ({ seconds: 0.1 }) };
  stop = w.rival.start();
  root = await rootOf(w.world);
});
afterAll(async () => {
  await stop?.();
  await root?.end();
});

const label = async () => {
  const made = { project_id: w.projectId, video_ids: [videoId], prompts: ["person"] };
  return (await w.admin.ok<{ job_id: string }>("POST", "/label", made)).job_id;
};

async function queuedTask(): Promise<string> {
  const job = await label();
  const { rows } = await database().execute<{ id: string }>(sql`
    SELECT id::text FROM task WHERE subject = ${`job:${job}`} AND kind = 'label'`);
  return rows[0]?.id ?? "";
}

const newCode = async () =>
  (await w.admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {})).code;

async function newNode(name: string): Promise<string> {
  const body = { code: await newCode(), name, capabilities: CAPABILITIES };
  return (await w.admin.ok<{ node_id: string }>("POST", "/node/register", body)).node_id;
}

const model = async () => (await registerModel(w.world, workspaceId)).model_id;

/** A model with a name, and the one that had it before. */
async function promoted(): Promise<{ older: string; newer: string }> {
  const [older, newer] = [await model(), await model()];
  for (const id of [older, newer]) {
    await w.admin.ok("POST", `/models/${id}/promote`, { alias: "staging" });
  }
  return { older, newer };
}

/** A named endpoint, and the address of its keys. */
async function endpoint(): Promise<{ slug: string; id: string; path: string }> {
  const slug = `gate-${crypto.randomUUID().slice(0, 8)}`;
  const body = { slug, workspace_id: workspaceId, models: [{ model_id: await model() }] };
  const { endpoint_id: id } = await w.admin.ok<{ endpoint_id: string }>("POST", "/endpoints", body);
  return { slug, id, path: `/endpoints/${slug}/keys` };
}

/** What each change needs to be there before. */
const CHANGES: Record<string, () => Promise<Change>> = {
  setRole: async () => {
    const person = await register(w.world.urls.vision);
    return {
      path: `/admin/users/${person.id}`,
      body: { role: "annotator", workspace_id: workspaceId },
      subject: `account:${person.id}`,
      workspaceId,
      before: { role: "viewer" },
      after: { role: "annotator" },
    };
  },
  makeWorkspace: async () => ({
    path: "/admin/workspaces",
    body: { name: "Fresh" },
    subject: /^workspace:/,
    workspaceId: expect.any(String),
    before: null,
    after: { name: "Fresh" },
  }),
  sendTestIncident: async () => ({
    path: "/admin/incidents/test",
    subject: "incidents",
    workspaceId: null,
    before: null,
    after: { delivered: true },
  }),
  makeInvitation: async () => ({
    path: "/admin/invitations",
    body: { workspace_id: workspaceId, role: "engineer" },
    subject: /^invitation:/,
    workspaceId,
    before: null,
    after: { role: "engineer" },
  }),
  revokeInvitation: async () => {
    const body = { workspace_id: workspaceId };
    const made = await w.admin.ok("POST", "/admin/invitations", body);
    const { invitation_id: id } = made as { invitation_id: string };
    return {
      path: `/admin/invitations/${id}`,
      subject: `invitation:${id}`,
      workspaceId,
      before: { revoked_at: null },
      after: { revoked_at: expect.any(String) },
    };
  },
  deleteUser: async () => {
    const person = await register(w.world.urls.vision);
    return {
      path: `/admin/users/${person.id}`,
      subject: `account:${person.id}`,
      workspaceId,
      before: { role: "viewer" },
      after: null,
    };
  },
  makePasswordReset: async () => {
    const person = await register(w.world.urls.vision);
    return {
      path: `/admin/users/${person.id}/password-reset`,
      subject: `account:${person.id}`,
      workspaceId,
      before: null,
      after: { expires_at: expect.any(String) },
    };
  },
  makeNodeCode: async () => ({
    path: "/admin/nodes/codes",
    body: { workspace_id: workspaceId },
    subject: "nodes",
    workspaceId,
    before: null,
    after: { workspace_id: workspaceId, expires_at: expect.any(String) },
  }),
  revokeNode: async () => {
    const id = await newNode("revoked soon");
    return {
      path: `/admin/nodes/${id}`,
      subject: `node:${id}`,
      workspaceId: null,
      before: { revoked_at: null },
      after: { revoked_at: expect.any(String) },
    };
  },
  revokeTask: async () => {
    const id = await queuedTask();
    return {
      path: `/admin/tasks/${id}/revoke`,
      subject: `task:${id}`,
      workspaceId,
      before: { status: "queued", revoke_requested: false },
      after: { status: "revoked", revoke_requested: true },
    };
  },
  purgeQueue: async () => {
    const id = await queuedTask();
    return {
      path: "/admin/queue/label/purge",
      subject: "queue:label",
      workspaceId,
      before: { status: "queued" },
      after: { status: "cancelled", count: 1, task_ids: [id] },
    };
  },
  failJob: async () => {
    const id = await label();
    return {
      path: `/admin/jobs/${id}/mark-failed`,
      subject: `job:${id}`,
      workspaceId,
      before: { status: "queued" },
      after: { status: "failed", failure: expect.any(String) },
    };
  },
  failRun: async () => {
    const id = await w.train();
    return {
      path: `/admin/training/${id}/mark-failed`,
      subject: `run:${id}`,
      workspaceId,
      before: { status: "queued" },
      after: { status: "failed", failure: expect.any(String) },
    };
  },
  promoteModel: async () => {
    const { newer } = await promoted();
    const id = await model();
    return {
      path: `/models/${id}/promote`,
      body: { alias: "staging" },
      subject: `model:${id}`,
      workspaceId,
      before: { staging: newer },
      after: { staging: id },
    };
  },
  removeName: async () => {
    const { newer } = await promoted();
    return {
      path: `/models/${newer}/names/staging`,
      subject: `model:${newer}`,
      workspaceId,
      before: { staging: newer },
      after: { staging: null },
    };
  },
  rollBackModel: async () => {
    const { older, newer } = await promoted();
    return {
      path: "/models/rollback",
      body: { name: "staging", workspace_id: workspaceId },
      subject: `model:${older}`,
      workspaceId,
      before: { staging: newer },
      after: { staging: older },
    };
  },
  makeEndpointKey: async () => {
    const { slug, id, path } = await endpoint();
    return {
      path,
      body: { name: "gate" },
      subject: `endpoint:${id}`,
      workspaceId,
      before: null,
      after: { slug, key_id: expect.any(String), name: "gate" },
    };
  },
  revokeEndpointKey: async () => {
    const { slug, id, path } = await endpoint();
    const { key_id } = await w.admin.ok<{ key_id: string }>("POST", path, { name: "gate" });
    return {
      path: `${path}/${key_id}`,
      subject: `endpoint:${id}`,
      workspaceId,
      before: { slug, key_id, revoked: false },
      after: { slug, key_id, revoked: true },
    };
  },
  ...fleetChanges(() => ({ admin: w.admin, workspaceId })),
  activateModel: async () => {
    const id = await model();
    return {
      path: `/models/${id}/activate`,
      subject: `model:${id}`,
      workspaceId,
      before: { active: expect.anything() },
      after: { active: id },
    };
  },
};
/** They change what admins answer for, and lie elsewhere. */
const ELSEWHERE = [
  ...["promoteModel", "removeName", "rollBackModel", "activateModel"],
  ...["makeEndpointKey", "revokeEndpointKey"],
  ...["makeDevice", "makeDeviceCode", "enrolDevice", "revokeDevice", "deleteDevice"],
  ...["changeFleetSettings", "addTarget", "changeTarget", "deleteTarget"],
  ...["setWorkflowSecret", "deleteWorkflowSecret"],
];

/** The changes of admins, by the description. */
async function changes(): Promise<{ id: string; method: string }[]> {
  const { paths } = (await describeApi(w.world.urls.vision)) as {
    paths: Record<string, Record<string, { operationId: string }>>;
  };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { operationId: id }]) => {
      const isMeant = path.startsWith(`${API}/admin/`) || ELSEWHERE.includes(id);
      return isMeant && method !== "get" ? [{ id, method: method.toUpperCase() }] : [];
    }),
  );
}

const newest = async () =>
  (await w.admin.ok<AuditPage>("GET", "/admin/audit?limit=1")).items[0]?.entry_id ?? 0;
const since = async (id: number) =>
  (await w.admin.ok<AuditPage>("GET", "/admin/audit?limit=500")).items.filter(
    ({ entry_id }) => entry_id > id,
  );

/** What admins' changes change, without what goes on by itself. */
async function snapshot(): Promise<unknown> {
  const { rows } = await database().execute(sql`
    SELECT (SELECT jsonb_agg(m ORDER BY m) FROM membership m) AS memberships,
      (SELECT jsonb_agg(session_version ORDER BY id) FROM account) AS versions,
      (SELECT jsonb_agg(x ORDER BY id) FROM workspace x) AS workspaces,
      (SELECT jsonb_agg(r ORDER BY account_id) FROM password_reset r) AS resets,
      (SELECT jsonb_agg(c ORDER BY hash) FROM node_code c) AS codes,
      (SELECT jsonb_agg(revoked_at ORDER BY id) FROM node) AS nodes,
      (SELECT jsonb_agg(jsonb_build_array(id, state, fence) ORDER BY id) FROM task
        WHERE kind IN ('label', 'train')) AS tasks,
      (SELECT jsonb_agg(jsonb_build_array(id, state, failure) ORDER BY id) FROM job) AS jobs,
      (SELECT jsonb_agg(jsonb_build_array(id, state, failure) ORDER BY id)
        FROM training_run) AS runs,
      (SELECT jsonb_agg(jsonb_build_array(id, active) ORDER BY id) FROM model) AS models,
      (SELECT jsonb_agg(a ORDER BY a) FROM model_alias a) AS aliases,
      (SELECT count(*)::int FROM model_move) AS moves,
      (SELECT jsonb_agg(revoked_at ORDER BY id) FROM endpoint_key) AS keys,
      (SELECT jsonb_agg(d ORDER BY id) FROM device d) AS devices,
      (SELECT jsonb_agg(c ORDER BY hash) FROM device_code c) AS device_codes,
      (SELECT jsonb_agg(t ORDER BY hash) FROM device_token t) AS device_tokens,
      (SELECT jsonb_agg(f ORDER BY workspace_id) FROM fleet_setting f) AS fleet_settings,
      (SELECT jsonb_agg(jsonb_build_array(id, revision) ORDER BY id) FROM target) AS targets,
      (SELECT jsonb_agg(s ORDER BY id) FROM workflow_secret s) AS workflow_secrets,
      (SELECT count(*)::int FROM audit_entry) AS entries`);
  return rows[0];
}

describe("a change of an admin", () => {
  it("leaves exactly one entry, of whoever made it, on every route", async () => {
    const walked = await changes();
    expect(walked.map(({ id }) => id).toSorted()).toEqual(Object.keys(CHANGES).toSorted());
    // An activation before, so that there is a model that was active.
    await w.admin.ok("POST", `/models/${await model()}/activate`);
    for (const { id, method } of walked) {
      const change = await (CHANGES[id] as () => Promise<Change>)();
      const last = await newest();
      const requestId = `audit-${id}`;
      await w.admin.ok(method, change.path, change.body, { "X-Request-Id": requestId });
      const entries = await since(last);
      expect([id, entries]).toEqual([
        id,
        [
          {
            entry_id: expect.any(Number),
            at: expect.any(String),
            actor_id: w.admin.id,
            actor_name: expect.any(String),
            actor_kind: "operator",
            token_id: null,
            action: id,
            subject:
              change.subject instanceof RegExp
                ? expect.stringMatching(change.subject)
                : change.subject,
            workspace_id: change.workspaceId,
            before: change.before,
            after: change.after,
            request_id: requestId,
          },
        ],
      ]);
    }
    const ofOthers = [
      ...["registerNode", "acceptInvitation", "makeApiToken", "revokeApiToken"],
      ...["resetPassword", "deleteAccount"],
    ];
    expect([...AUDIT_ACTIONS].toSorted()).toEqual(
      [...Object.keys(CHANGES), ...ofOthers].toSorted(),
    );
  });

  it("is not there without its entry: where that cannot be written, nothing changed", async () => {
    const walked = await changes();
    for (const { id, method } of walked) {
      const { path, body } = await (CHANGES[id] as () => Promise<Change>)();
      const before = await snapshot();
      await root.query(`
        CREATE FUNCTION refuse_entry() RETURNS trigger LANGUAGE plpgsql
          AS $$ BEGIN RAISE EXCEPTION 'no room for entries'; END $$;
        CREATE TRIGGER refuse_entry BEFORE INSERT ON audit_entry
          FOR EACH ROW EXECUTE FUNCTION refuse_entry()`);
      try {
        const answer = await w.admin.send(method, path, body);
        expect([id, answer.status]).toEqual([id, 500]);
        expect([id, await snapshot()]).toEqual([id, before]);
      } finally {
        await root.query("DROP FUNCTION refuse_entry CASCADE");
      }
      const again = await w.admin.send(method, path, body);
      expect([id, again.status < 300]).toEqual([id, true]);
    }
  });

  it("that does not come to be leaves no entry", async () => {
    const job = await label();
    await w.admin.ok("POST", `/admin/jobs/${job}/mark-failed`);
    const task = await queuedTask();
    await w.admin.ok("POST", `/admin/tasks/${task}/revoke`);
    const node = await newNode("gone");
    await w.admin.ok("DELETE", `/admin/nodes/${node}`);
    await w.admin.ok("POST", "/admin/queue/label/purge");
    const id = await model();
    await w.admin.ok("POST", `/models/${id}/promote`, { alias: "canary" });
    const last = await newest();
    expect((await w.admin.send("POST", `/admin/jobs/${job}/mark-failed`)).status).toBe(409);
    expect((await w.admin.send("POST", `/admin/tasks/${task}/revoke`)).status).toBe(409);
    expect((await w.admin.send("DELETE", `/admin/nodes/${node}`)).status).toBe(404);
    expect((await w.admin.send("POST", "/admin/queue/label/purge")).status).toBe(200);
    const named = await w.admin.send("POST", `/models/${id}/promote`, { alias: "canary" });
    expect(named.status).toBe(200);
    const own = { role: "viewer", workspace_id: workspaceId };
    expect((await w.admin.send("PATCH", `/admin/users/${w.admin.id}`, own)).status).toBe(409);
    expect(await since(last)).toEqual([]);
  });

  it("holds no code and no token, and names who introduced a node", async () => {
    const last = await newest();
    const code = await newCode();
    const body = { code, name: "introduced", capabilities: CAPABILITIES };
    const made = await w.admin.ok<{ node_id: string; node_token: string }>(
      ...(["POST", "/node/register"] as const),
      body,
    );
    const entries = await since(last);
    const told = entries.map((one) => [one.action, one.subject, one.actor_id, one.actor_kind]);
    expect(told).toEqual([
      ["registerNode", `node:${made.node_id}`, w.admin.id, "operator"],
      ["makeNodeCode", "nodes", w.admin.id, "operator"],
    ]);
    const { rows } = await database().execute(sql`SELECT row_to_json(e)::text FROM audit_entry e`);
    const text = JSON.stringify(rows);
    for (const secret of [code, made.node_token, w.admin.token, w.admin.email]) {
      expect(text).not.toContain(secret);
    }
  });

  it("of two demotions at once tells each role as it was", async () => {
    const url = w.world.urls.vision;
    const person = await register(url);
    const last = await newest();
    const roles = ["annotator", "engineer", "viewer", "annotator"];
    await Promise.all(
      roles.map((role) =>
        w.admin.ok("PATCH", `/admin/users/${person.id}`, { role, workspace_id: workspaceId }),
      ),
    );
    const entries = (await since(last)).toReversed();
    const chain = entries.map(({ before, after }) => [before?.role, after?.role]);
    expect(chain).toHaveLength(roles.length);
    // In the order in which they took effect, each begins where another ended.
    const ends = chain.map(([, after]) => after).toSorted();
    const { rows } = await database().execute<{ role: string }>(sql`
      SELECT role FROM membership WHERE account_id = ${person.id}::uuid
         AND workspace_id = ${workspaceId}::uuid`);
    const begins = chain.map(([before]) => before);
    expect([...begins, rows[0]?.role].toSorted()).toEqual([...ends, "viewer"].toSorted());
  });
});
