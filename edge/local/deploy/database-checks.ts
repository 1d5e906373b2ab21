// What a deployment looks at in its databases, over the direct address of each one's owner: its
// migrations, and the roles that the services connect as. Nothing here changes anything.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { hasAdmin } from "../first-admin.ts";
import { type DatabaseName, MIGRATIONS, TOO_OLD } from "../migrations.ts";
import type { Roles } from "../rights.ts";
import { ROOT } from "../state.ts";
import type { WorkerName } from "../workers.ts";
import type { Check } from "./findings.ts";
import { type DeployEnvironment, givenValue, variableOf } from "./requirements.ts";

const CONNECT_MS_MAX = 10_000;

/** Who connects to a database, as which of its roles, by which key. */
const CONNECTIONS: Readonly<
  Record<DatabaseName, readonly { role: keyof Roles; service: WorkerName; key: string }[]>
> = {
  markets: [
    { role: "reader", service: "markets", key: "DATABASE_URL" },
    { role: "writer", service: "console", key: "DATABASE_URL" },
  ],
  graph: [
    { role: "reader", service: "markets", key: "GRAPH_DATABASE_URL" },
    { role: "writer", service: "console", key: "GRAPH_DATABASE_URL" },
  ],
  vision: [{ role: "writer", service: "vision", key: "DATABASE_URL" }],
};

/** The address that a database is migrated over. */
export const migrateVariable = (database: DatabaseName): string =>
  `${database.toUpperCase()}_MIGRATE_URL`;
const roleVariable = (database: DatabaseName, role: string): string =>
  `${database.toUpperCase()}_${role.toUpperCase()}_ROLE`;

/** The roles of a database's services: named, or those of the services' addresses. */
export function rolesOf(environment: DeployEnvironment, database: DatabaseName): Partial<Roles> {
  const entries = CONNECTIONS[database].map(({ role, service, key }) => {
    const url = URL.parse(givenValue(environment, service, key) ?? "");
    const user = url?.username ? decodeURIComponent(url.username) : undefined;
    return [role, environment[roleVariable(database, role)] || user] as const;
  });
  return Object.fromEntries(entries);
}

/** What was found of a database. */
export interface DatabaseFindings {
  checks: Check[];
  /** Whether vision's default workspace has an admin; false where it was not looked at. */
  hasAdmin: boolean;
}

/** Looks at a database, as far as its address leads. */
export async function checkDatabase(
  database: DatabaseName,
  environment: DeployEnvironment,
): Promise<DatabaseFindings> {
  const variable = migrateVariable(database);
  const subject = `database ${database}`;
  const only = (check: Omit<Check, "subject">) => ({
    checks: [{ subject, ...check }],
    hasAdmin: false,
  });
  const text = environment[variable];
  if (!text) {
    const form = `postgresql://OWNER:PASSWORD@HOST/${database}`;
    const detail = `${variable} is not set: the schema's owner must migrate first`;
    return only({ finding: "missing", detail, remedy: `in deploy.env: ${variable}=${form}` });
  }
  const url = URL.parse(text);
  if (!url || !/^postgres(ql)?:$/.test(url.protocol)) {
    const detail = `${variable} must be postgresql://user:password@host/database`;
    return only({ finding: "different", detail, remedy: `correct ${variable}` });
  }
  if (/-pooler\./.test(url.hostname)) {
    const direct = url.hostname.replace("-pooler.", ".");
    const detail = `${variable} is a pooled address, over which migrations cannot run`;
    return only({ finding: "different", detail, remedy: `name the direct one: ${direct}` });
  }
  const client = new pg.Client({
    connectionString: text,
    connectionTimeoutMillis: CONNECT_MS_MAX,
    query_timeout: CONNECT_MS_MAX,
  });
  try {
    await client.connect();
    const migrations = await checkMigrations(client, database);
    const isWhole = migrations.finding === "right";
    return {
      checks: [
        migrations,
        ...checkAddresses(environment, database, url),
        ...(await checkRoles(client, { database, environment, isWhole })),
      ],
      hasAdmin: database === "vision" && (await hasAdmin(client)),
    };
  } catch (thrown) {
    // The driver's own texts name hosts and users; no password is among them, nor a statement.
    const { code, message } = thrown as { code?: string; message: string };
    const detail = `cannot be looked at: ${code ?? message}`;
    return only({ finding: "unknown", detail, remedy: `check ${variable}, then try again` });
  } finally {
    await client.end().catch(() => {});
  }
}

async function checkMigrations(client: pg.Client, database: DatabaseName): Promise<Check> {
  const subject = `database ${database}`;
  const journal = join(ROOT, MIGRATIONS[database], "meta/_journal.json");
  const { entries } = JSON.parse(readFileSync(journal, "utf8")) as {
    entries: { when: number; tag: string }[];
  };
  const { rows: tables } = await client.query(
    "SELECT to_regclass('drizzle.__drizzle_migrations') IS NOT NULL AS migrated",
  );
  const { rows } = tables[0].migrated
    ? await client.query<{ at: number | null }>(
        "SELECT max(created_at)::float8 AS at FROM drizzle.__drizzle_migrations",
      )
    : { rows: [] };
  const applied = rows[0]?.at ?? 0;
  const pending = entries.filter(({ when }) => when > applied);
  if (applied > 0 && pending.length === entries.length) {
    return { subject, finding: "different", detail: TOO_OLD, remedy: "name a new, empty database" };
  }
  if (pending.length > 0) {
    const change = { kind: "database", database } as const;
    const detail = `${pending.length} of ${entries.length} migrations are to be applied`;
    return { subject, finding: "missing", detail, change };
  }
  const last = entries.at(-1);
  const isAhead = last !== undefined && applied > last.when;
  const ahead = isAhead ? ", and later ones of another release" : "";
  return { subject, finding: "right", detail: `migrated up to ${last?.tag}${ahead}` };
}

/** The services' addresses must lead where the migrations went. */
function checkAddresses(
  environment: DeployEnvironment,
  database: DatabaseName,
  owner: URL,
): Check[] {
  const placeOf = ({ hostname, pathname }: URL) => hostname.replace("-pooler.", ".") + pathname;
  return CONNECTIONS[database].flatMap(({ role, service, key }) => {
    const variable = variableOf(service, key);
    const url = URL.parse(givenValue(environment, service, key) ?? "");
    if (!url) return [];
    const subject = variable;
    const named = environment[roleVariable(database, role)];
    if (placeOf(url) !== placeOf(owner)) {
      const detail = `leads to another database than ${migrateVariable(database)}`;
      const remedy = "correct one of the two";
      return [{ subject, finding: "different" as const, detail, remedy }];
    }
    if (!named || named === decodeURIComponent(url.username)) return [];
    const detail = `its user is not ${roleVariable(database, role)}`;
    const remedy = `leave ${roleVariable(database, role)} out, or correct one of the two`;
    return [{ subject, finding: "different" as const, detail, remedy }];
  });
}

interface RoleRow {
  login: boolean;
  superuser: boolean;
  neon: boolean;
  owner: boolean;
  readable: boolean;
}

/** One statement about a role: what it may, and whether it owns anything here. */
const ROLE_SQL = `
  SELECT rolcanlogin AS login, rolsuper AS superuser,
      EXISTS (SELECT FROM pg_roles neon WHERE neon.rolname = 'neon_superuser'
        AND pg_has_role(role.oid, neon.oid, 'MEMBER')) AS neon,
      EXISTS (SELECT FROM pg_class WHERE pg_has_role(role.oid, relowner, 'MEMBER'))
        OR EXISTS (SELECT FROM pg_database WHERE datname = current_database()
          AND pg_has_role(role.oid, datdba, 'MEMBER')) AS owner,
      NOT EXISTS (SELECT FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
        WHERE nspname = 'public' AND relkind = 'r'
          AND NOT has_table_privilege(role.oid, pg_class.oid, 'SELECT')) AS readable
    FROM pg_roles role WHERE rolname = $1`;

async function checkRoles(
  client: pg.Client,
  options: { database: DatabaseName; environment: DeployEnvironment; isWhole: boolean },
): Promise<Check[]> {
  const { database, environment, isWhole } = options;
  const roles = rolesOf(environment, database);
  const checks: Check[] = [];
  for (const { role, service, key } of CONNECTIONS[database]) {
    const name = roles[role];
    const subject = `role of ${database}'s ${role}`;
    if (name === undefined) {
      const detail = "it is not known";
      const variables = `${variableOf(service, key)} or ${roleVariable(database, role)}`;
      checks.push({ subject, finding: "missing", detail, remedy: `set ${variables}` });
      continue;
    }
    const { rows } = await client.query<RoleRow>(ROLE_SQL, [name]);
    const found = { subject: `${subject}, ${name}`, name, row: rows[0], database, isWhole };
    checks.push(judgeRole(found));
  }
  return checks;
}

function judgeRole(found: {
  subject: string;
  name: string;
  row: RoleRow | undefined;
  database: DatabaseName;
  isWhole: boolean;
}): Check {
  const { subject, row, database, isWhole } = found;
  const name = pg.escapeIdentifier(found.name);
  const create = `CREATE ROLE ${name} LOGIN PASSWORD '…';`;
  if (!row) return { subject, finding: "missing", detail: "there is none", remedy: create };
  const different = (detail: string, remedy: string): Check => ({
    subject,
    finding: "different",
    detail,
    remedy,
  });
  const another = `make another by SQL: ${create.replace(name, "NAME")}`;
  if (row.superuser) return different("it is a superuser", another);
  if (row.neon) {
    return different("it is a member of neon_superuser, which may write everything", another);
  }
  if (row.owner) return different("it owns the database, or tables in it", another);
  if (!row.login) return different("it may not log in", `ALTER ROLE ${name} LOGIN;`);
  if (isWhole && !row.readable) {
    const change = { kind: "database", database } as const;
    return { subject, finding: "missing", detail: "it lacks rights to tables", change };
  }
  return { subject, finding: "right", detail: "logs in, owns nothing" };
}
