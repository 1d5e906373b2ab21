// The pages' routes: who may see them, what forms do, and how failures look in a browser. They are
// for people and no part of the operator API's description.

import { type Context, Hono, type MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import { csrf } from "hono/csrf";
import { HTTPException } from "hono/http-exception";
import { z } from "zod";
import { type ErrorCode, Failure } from "../../shared/errors.ts";
import { parseInstant } from "../../shared/time.ts";
import type { App } from "../http/app.ts";
import { OWN_SITE } from "../http/browser-request.ts";
import { holderOf, type TokenHolder } from "../http/keys.ts";
import { clientAddress, MARK_MS } from "../http/throttle.ts";
import { setRetired } from "../markets/ingest/instruments.ts";
import { findBackfill, findExecution } from "../markets/ingest/ledger.ts";
import {
  accept,
  cancel,
  launch,
  resumeBackfill,
  setSchedule,
  startBackfill,
} from "../markets/ingest/operate.ts";
import { holdingPartition, type Partitions } from "../markets/ingest/partition.ts";
import { requirePipeline } from "../markets/ingest/pipeline.ts";
import { testWebhook } from "./alert-routes.ts";
import { assetAt } from "./assets.ts";
import { endSession, hasEnded } from "./ended-sessions.ts";
import { operatorsOf } from "./operators.ts";
import { AlertsQuery, alertsView } from "./pages/alerts.tsx";
import { confirmView, planBackfill } from "./pages/backfill-plan.tsx";
import { backfillsView, backfillView } from "./pages/backfills.tsx";
import { CalendarQuery, calendarView } from "./pages/calendar.tsx";
import { checksView } from "./pages/checks.tsx";
import { EventsQuery, eventsView } from "./pages/events.tsx";
import { GraphQuery, graphView } from "./pages/graph.tsx";
import {
  chooseClock,
  cookieOptions,
  DEVICE_COOKIE,
  goOn,
  type PageContext,
  type PageEnv,
  SESSION_COOKIE,
  securePage,
  show,
  showBare,
  showInstead,
  type View,
} from "./pages/layout.tsx";
import { Login, Trouble } from "./pages/login.tsx";
import { overviewView } from "./pages/overview.tsx";
import { pipelineView } from "./pages/pipeline-page.tsx";
import { refusalView } from "./pages/refusal.tsx";
import { runView } from "./pages/run.tsx";
import { RunsQuery, runsView } from "./pages/runs.tsx";
import { schedulesView, scheduleView } from "./pages/schedules.tsx";
import { SeriesQuery, seriesView } from "./pages/series.tsx";
import { TimelineQuery, timelineView } from "./pages/timeline.tsx";
import { number, schedulePath } from "./pages/words.ts";
import type { Console } from "./parameters.ts";
import { asFailure, readApiOf, snippetUrlOf } from "./read-api.ts";
import {
  beginSession,
  isFormToken,
  markDevice,
  readDevice,
  readSession,
  SESSION_MS,
} from "./session.ts";
import { checkedToken } from "./throttle.ts";

const FORM_BYTES_MAX = 16 * 1024;
const YEAR_S = 31_536_000;

type Pages = Hono<PageEnv>;
type Fields = Readonly<Record<string, unknown>>;

/** Registers the pages on the service. */
export function addPages(app: App<Console>) {
  const pages: Pages = new Hono<PageEnv>();
  addAssets(pages);
  addLogin(pages);
  addViews(pages);
  addForms(pages);
  app.route("/", pages);
}

/** Shows failures as pages to those who ask for pages. Registered before any route. */
export const failuresAsPages: MiddlewareHandler = async (context, next) => {
  await next();
  const wantsPage = (context.req.header("Accept") ?? "").includes("text/html");
  const isApi = /^\/(api|docs|openapi\.json|healthz|metrics)(\/|$)/.test(context.req.path);
  const { res } = context;
  if (res.status < 400 || isApi || !wantsPage) return;
  if (!res.headers.get("Content-Type")?.startsWith("application/json")) return;
  const { detail = "", request_id: requestId = "" } = (await res.json()) as Record<string, string>;
  const title = TITLES[res.status] ?? "It did not work";
  await showInstead(
    context,
    title,
    <Trouble title={title} detail={detail} requestId={requestId} />,
  );
};

const TITLES: Readonly<Record<number, string>> = {
  400: "That was not understood",
  401: "Not allowed",
  403: "Refused",
  404: "Not here",
  405: "Not like this",
  422: "That does not fit",
  429: "Too many attempts",
  500: "A fault of ours",
  502: "It did not work",
  503: "Not answering",
};

function addAssets(pages: Pages) {
  pages.get("/assets/:file", (context) => {
    const asset = assetAt(context.req.path);
    if (!asset) throw new Failure("route_not_found", "no such file");
    context.header("Content-Type", asset.type);
    context.header("Cache-Control", `public, max-age=${YEAR_S}, immutable`);
    return context.body(asset.text);
  });
}

/** A path of our own to go to after the login; anything else leads to the overview. */
const ownPath = (given: unknown): string =>
  typeof given === "string" && /^\/(?![/\\])[\w\-./?=&%:+]*$/.test(given) ? given : "/overview";

const sessionOf = async (context: Context<PageEnv>) => {
  const { config, ingest } = context.var.service;
  const cookie = getCookie(context, SESSION_COOKIE);
  const session = await readSession(operatorsOf(config), cookie, ingest.clock());
  return session && !(await hasEnded(ingest.database, session)) ? session : null;
};

const checkOrigin = csrf({
  secFetchSite: [...OWN_SITE],
  // Over plain HTTP to another machine browsers send no Sec-Fetch-Site. Our Referrer-Policy makes
  // the origin of our own forms "null".
  origin: (origin, { req }) =>
    req.header("Sec-Fetch-Site") === undefined &&
    (origin === "null" || origin === new URL(req.url).origin),
});

/**
 * Browsers say where a form came from; a form from elsewhere is refused, whichever fields it has.
 * Programs say nothing and pass: they hold no cookie that another site could abuse.
 */
const fromHere: MiddlewareHandler = async (context, next) => {
  const { req } = context;
  const isBrowser = [req.header("Sec-Fetch-Site"), req.header("Origin")].some(Boolean);
  if (!isBrowser) return next();
  return checkOrigin(context, next).catch((thrown: unknown) => {
    if (!(thrown instanceof HTTPException)) throw thrown;
    throw new Failure("form_refused", "this form came from another site", { cause: thrown });
  });
};

const small = bodyLimit({
  maxSize: FORM_BYTES_MAX,
  onError: () => {
    throw new Failure("form_refused", "the form is too large");
  },
});

/**
 * The operator who has this token, or null. The mark of a device is for its own operator alone:
 * another who logs in there is a stranger.
 */
async function operatorWith(context: Context<PageEnv>, address: string | null, token: string) {
  const { config, ingest } = context.var.service;
  const operators = operatorsOf(config);
  const device = await readDevice(operators, getCookie(context, DEVICE_COOKIE), ingest.clock());
  if (!device) {
    return checkedToken(ingest, { address, device }, () => holderOf(token, operators));
  }
  const owner = device.operator;
  const match = await checkedToken(ingest, { address, device }, () => holderOf(token, [owner]));
  const others = operators.filter((one) => one !== owner);
  if (match || others.length === 0) return match;
  return checkedToken(ingest, { address, device: null }, () => holderOf(token, others));
}

/** Lets this browser's next login wait for no stranger's guesses. Only the login is sent it. */
async function rememberDevice(context: Context<PageEnv>, operator: TokenHolder) {
  const mark = await markDevice(operator, context.var.service.ingest.clock());
  const options = { ...cookieOptions(context), path: "/login", maxAge: MARK_MS / 1_000 };
  setCookie(context, DEVICE_COOKIE, mark, options);
}

function addLogin(pages: Pages) {
  pages.get("/login", async (context) => {
    const next = ownPath(context.req.query("next"));
    if (await sessionOf(context)) return context.redirect(next, 303);
    return showBare(context, "Log in", <Login next={next} />, 200);
  });
  pages.post("/login", fromHere, small, async (context) => {
    const { config, ingest } = context.var.service;
    const { token, next } = await context.req.parseBody();
    const address = clientAddress(context.req, config.BEHIND_CLOUDFLARE);
    const operator = await operatorWith(context, address, String(token ?? "").trim());
    if (!operator) {
      context.var.log.warning("console_login_refused", { address });
      const problem = "This is not the operator token.";
      return showBare(context, "Log in", <Login next={ownPath(next)} problem={problem} />, 401);
    }
    const session = await beginSession(operator, ingest.clock());
    const maxAge = SESSION_MS / 1_000;
    setCookie(context, SESSION_COOKIE, session, { ...cookieOptions(context), maxAge });
    await rememberDevice(context, operator);
    securePage(context);
    return context.redirect(ownPath(next), 303);
  });
  form(pages, "/logout", async (context) => {
    await endSession(context.var.service.ingest.database, context.var.session);
    deleteCookie(context, SESSION_COOKIE, cookieOptions(context));
    return context.redirect("/login", 303);
  });
}

/** Lets only a session pass; a browser without one is sent to the login. */
const guarded: MiddlewareHandler<PageEnv> = async (context, next) => {
  const session = await sessionOf(context);
  if (!session) {
    if (context.req.query("fragment") !== undefined) {
      throw new Failure("unauthorized", "the session is over");
    }
    const { pathname, search } = new URL(context.req.url);
    const back =
      context.req.method === "GET" ? `?next=${encodeURIComponent(pathname + search)}` : "";
    return context.redirect(`/login${back}`, 303);
  }
  context.set("session", session);
  return next();
};

function view(pages: Pages, path: string, make: (context: PageContext) => Promise<View>) {
  pages.get(path, guarded, async (context) => show(context, await make(context)));
}

/** A form's action: guarded, from our own pages, with the session's token. */
function form(
  pages: Pages,
  path: string,
  act: (context: PageContext, fields: Fields) => Promise<Response>,
) {
  pages.post(path, guarded, fromHere, small, async (context) => {
    const { session } = context.var;
    const fields = await context.req.parseBody();
    const given = typeof fields.form_token === "string" ? fields.form_token : "";
    if (!(await isFormToken(session, given))) {
      const detail = "this form is not of your session; go back, load the page again and repeat";
      throw new Failure("form_refused", detail);
    }
    securePage(context);
    return act(context, fields);
  });
}

function parsed<Shape extends z.ZodType>(shape: Shape, values: unknown): z.output<Shape> {
  const result = shape.safeParse(values);
  if (result.success) return result.data;
  const problems = result.error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`);
  throw new Failure("invalid_request", problems.join("; "));
}

const Id = z.uuid("must be a UUID");
const idOf = (context: PageContext) => parsed(Id, context.req.param("id"));
const ID_EXAMPLE = "6f1c2b9e-3d7a-4c55-8a10-2b1f9d0c4e71";
/** The id in a page's address; what can be none names nothing that there is. */
function idOfPage(context: PageContext, code: ErrorCode, what: string, list: string): string {
  const given = context.req.param("id") ?? "";
  if (Id.safeParse(given).success) return given;
  const detail =
    `there is no ${what} ${JSON.stringify(given.slice(0, 64))}: an id looks like ${ID_EXAMPLE}; ` +
    `find it at ${list}`;
  throw new Failure(code, detail);
}
/** Name of the operator whose session it is. */
const byOf = (context: PageContext) => context.var.session.operator.name;
const Instant = z.iso.datetime("must be an instant in UTC").optional();

function addViews(pages: Pages) {
  const ingestOf = (context: PageContext) => context.var.service.ingest;
  view(pages, "/overview", (context) => overviewView(ingestOf(context)));
  view(pages, "/pipelines/:job", (context) =>
    pipelineView(ingestOf(context), context.req.param("job") ?? "", {
      last: context.req.query("last"),
      partition: context.req.query("partition"),
    }),
  );
  view(pages, "/runs", (context) =>
    runsView(ingestOf(context), parsed(RunsQuery, context.req.query())),
  );
  view(pages, "/timeline", (context) =>
    timelineView(ingestOf(context), parsed(TimelineQuery, context.req.query())),
  );
  view(pages, "/events", (context) =>
    eventsView(ingestOf(context), parsed(EventsQuery, context.req.query())),
  );
  view(pages, "/runs/:id", (context) =>
    runView(ingestOf(context), idOfPage(context, "unknown_run", "run", "/runs")),
  );
  view(pages, "/refusals/:id", (context) =>
    refusalView(
      ingestOf(context),
      idOfPage(context, "unknown_refusal", "refused change", "/checks"),
    ),
  );
  view(pages, "/calendar", (context) =>
    calendarView(ingestOf(context), parsed(CalendarQuery, context.req.query())),
  );
  view(pages, "/schedules", (context) => schedulesView(ingestOf(context)));
  view(pages, "/schedules/:name", (context) =>
    scheduleView(
      ingestOf(context),
      context.req.param("name") ?? "",
      parsed(Instant, context.req.query("before")),
    ),
  );
  view(pages, "/checks", (context) => checksView(ingestOf(context)));
  view(pages, "/alerts", (context) =>
    alertsView(
      ingestOf(context),
      context.var.service.webhook,
      parsed(AlertsQuery, context.req.query()),
    ),
  );
  view(pages, "/backfills", (context) => backfillsView(ingestOf(context)));
  view(pages, "/backfills/:id", (context) =>
    backfillView(
      ingestOf(context),
      idOfPage(context, "unknown_backfill", "backfill", "/backfills"),
    ),
  );
  view(pages, "/graph", (context) =>
    graphView(readApiOf(context.var.service.config), parsed(GraphQuery, context.req.query())).catch(
      (thrown) => {
        throw asFailure(thrown);
      },
    ),
  );
  view(pages, "/series", (context) => {
    const { config, ingest } = context.var.service;
    const asking = { api: readApiOf(config), url: snippetUrlOf(config), now: ingest.clock() };
    const instrument = context.req.queries("instrument");
    const query = parsed(SeriesQuery, { ...context.req.query(), instrument });
    return seriesView(asking, query).catch((thrown) => {
      throw asFailure(thrown);
    });
  });
}

/** Any day of a week or month names it; what is no day is refused later, by name. */
function partitionOfDay(partitions: Partitions, day: string): string {
  const instant = parseInstant(day);
  if (instant === null || partitions.unit === "operating_day") return day;
  return holdingPartition(partitions, instant);
}

const LaunchForm = z.object({ partition: z.string().trim().optional() });
const BackfillForm = z.object({
  first: z.string().trim(),
  last: z.string().trim(),
  key: z.uuid("must be a UUID"),
  confirmed: z.literal("true").optional(),
});
const RetireForm = z.object({ instrument_id: z.string(), retired: z.enum(["true", "false"]) });
const ClockForm = z.object({ clock: z.string().max(64), back: z.string().optional() });
const SwitchForm = z.object({ enabled: z.enum(["true", "false"]) });

const AcceptForm = z.object({ refusals: z.string().transform((text) => text.split(" ")) });

function addForms(pages: Pages) {
  form(pages, "/pipelines/:job/launch", async (context, fields) => {
    const { ingest } = context.var.service;
    const { job, partitions } = requirePipeline(ingest.pipelines, context.req.param("job") ?? "");
    const { partition } = parsed(LaunchForm, fields);
    const key = partition ? partitionOfDay(partitions, partition) : undefined;
    const runId = await launch(ingest, job, key, byOf(context));
    return goOn(context, `/runs/${runId}`, "The run is queued.");
  });
  form(pages, "/pipelines/:job/backfill", async (context, fields) => {
    const { ingest } = context.var.service;
    const pipeline = requirePipeline(ingest.pipelines, context.req.param("job") ?? "");
    const { job } = pipeline;
    const { key, first, last, confirmed } = parsed(BackfillForm, fields);
    const plan = await planBackfill(ingest, { job, first, last });
    if (!plan.isSmall && !confirmed) {
      return show(context, confirmView(pipeline, plan, { job, first, last, key }));
    }
    // The same form sent twice is one backfill; another range is another.
    const idempotencyKey = `console ${key} ${job} ${first} ${last}`;
    const asked = { job, first, last, idempotencyKey, launchedBy: byOf(context) };
    const id = await startBackfill(ingest, asked);
    const runs = plan.runs === 1 ? "1 run" : `${number(plan.runs)} runs`;
    return goOn(context, `/backfills/${id}`, `The backfill is under way: ${runs}, ${plan.time}.`);
  });
  form(pages, "/runs/:id/cancel", async (context) => {
    const runId = idOf(context);
    const ended = await cancel(context.var.service.ingest, { runId }, byOf(context));
    const said = ended > 0 ? "Canceled. What it had committed stays." : "It had ended already.";
    return goOn(context, `/runs/${runId}`, said);
  });
  form(pages, "/runs/:id/again", async (context) => {
    const { ingest } = context.var.service;
    const run = await findExecution(ingest.database, idOf(context));
    if (!run) throw new Failure("unknown_run", "no such run");
    const runId = await launch(ingest, run.job, run.partition, byOf(context));
    return goOn(context, `/runs/${runId}`, "A new run of the same partition is queued.");
  });
  form(pages, "/refusals/accept", async (context, fields) => {
    const ids = parsed(z.array(Id).min(1), parsed(AcceptForm, fields).refusals);
    const { ingest } = context.var.service;
    const { refusals, runIds } = await accept(ingest, ids, byOf(context));
    const [first, other] = refusals;
    const what = first && !other ? first.symbol : `${number(refusals.length)} changes`;
    const runs = runIds.length === 1 ? "this run commits it" : `${runIds.length} runs commit it`;
    const next = runIds.length === 1 ? `/runs/${runIds[0]}` : "/runs";
    return goOn(context, next, `Accepted for ${what}; ${runs}.`);
  });
  form(pages, "/clock", async (context, fields) => {
    const { clock, back } = parsed(ClockForm, fields);
    if (!chooseClock(context, clock)) {
      throw new Failure("invalid_request", `clock: ${JSON.stringify(clock)} is no time zone`);
    }
    return context.redirect(ownPath(back), 303);
  });
  form(pages, "/schedules/:name/switch", async (context, fields) => {
    const name = context.req.param("name") ?? "";
    const enabled = parsed(SwitchForm, fields).enabled === "true";
    await setSchedule(context.var.service.ingest, name, { enabled, by: byOf(context) });
    const back = typeof fields.back === "string" ? ownPath(fields.back) : schedulePath(name);
    return goOn(context, back, `${name} is ${enabled ? "on" : "off"}.`);
  });
  form(pages, "/instruments/retire", async (context, fields) => {
    const { database, clock } = context.var.service.ingest;
    const { instrument_id: id, retired: word } = parsed(RetireForm, fields);
    const retired = word === "true";
    await setRetired(database, id, { retired, by: byOf(context), now: clock() });
    return goOn(context, "/checks", `${id} is ${retired ? "retired" : "watched"}.`);
  });
  form(pages, "/alerts/test", async (context) => {
    const sent = await testWebhook(context.var.service, byOf(context));
    const said = sent.last_error ?? "The webhook took the test.";
    return goOn(context, "/alerts", said, sent.last_error ? "problem" : "done");
  });
  addBackfillForms(pages);
}

function addBackfillForms(pages: Pages) {
  const requireBackfill = async (context: PageContext) => {
    const found = await findBackfill(context.var.service.ingest.database, idOf(context));
    if (!found) throw new Failure("unknown_backfill", "no such backfill");
    return found;
  };
  form(pages, "/backfills/:id/cancel", async (context) => {
    const { backfill_id: backfillId } = await requireBackfill(context);
    const ended = await cancel(context.var.service.ingest, { backfillId }, byOf(context));
    const said = ended === 1 ? "1 run was canceled." : `${ended} runs were canceled.`;
    return goOn(context, `/backfills/${backfillId}`, `${said} What was committed stays.`);
  });
  form(pages, "/backfills/:id/retry", async (context) => {
    const { backfill_id: backfillId } = await requireBackfill(context);
    await resumeBackfill(context.var.service.ingest, backfillId, { by: byOf(context) });
    const said = "What had failed, was partial or canceled is queued again.";
    return goOn(context, `/backfills/${backfillId}`, said);
  });
}
