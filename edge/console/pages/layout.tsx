// What every page of the console is made of: the frame, its headers, and how a handler shows one.

import type { Context } from "hono";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import { html } from "hono/html";
import type { Child, FC } from "hono/jsx";
import type { AppEnv } from "../../http/app.ts";
import { lastMinute } from "../../markets/ingest/ticks.ts";
import { ASSETS } from "../assets.ts";
import type { Console } from "../parameters.ts";
import { formToken, type Notice, readNotice, type Session, writeNotice } from "../session.ts";
import { ClockContext } from "./components.tsx";
import { SilenceBanner } from "./scheduler.tsx";
import { type Clock, zoneNamed } from "./words.ts";

/** What a page's handler finds in its context. */
export interface PageEnv {
  Bindings: object;
  Variables: AppEnv<Console>["Variables"] & { session: Session };
}
export type PageContext = Context<PageEnv>;

/** What parts of a page need to know of the request. */
export interface Here {
  now: number;
  /** The session's token for forms. */
  token: string;
  /** Name of the operator who looks. */
  operator: string;
  /** The page's own address, to come back to. */
  path: string;
  /** The clock by which its times are shown. */
  clock: Clock;
}

type Section =
  | "overview"
  | "calendar"
  | "runs"
  | "timeline"
  | "events"
  | "schedules"
  | "checks"
  | "alerts"
  | "backfills"
  | "series"
  | "graph";

const SECTIONS: readonly { section: Section; path: string; title: string }[] = [
  { section: "overview", path: "/overview", title: "Overview" },
  { section: "runs", path: "/runs", title: "Runs" },
  { section: "timeline", path: "/timeline", title: "Timeline" },
  { section: "events", path: "/events", title: "Events" },
  { section: "calendar", path: "/calendar", title: "Calendar" },
  { section: "schedules", path: "/schedules", title: "Schedules" },
  { section: "checks", path: "/checks", title: "Checks" },
  { section: "alerts", path: "/alerts", title: "Alerts" },
  { section: "backfills", path: "/backfills", title: "Backfills" },
  { section: "series", path: "/series", title: "Series" },
  { section: "graph", path: "/graph", title: "Graph" },
];

/** The cookie that holds the signed session. */
export const SESSION_COOKIE = "vantage_session";
/** The cookie that holds the mark of a device where somebody logged in. */
export const DEVICE_COOKIE = "vantage_device";
const NOTICE_COOKIE = "vantage_notice";
/** The cookie that holds the clock which this browser's reader chose. */
const CLOCK_COOKIE = "vantage_clock";
const CLOCK_SECONDS = 31_536_000;
const NOTICE_SECONDS = 60;

/** Own files only, nothing inline: what a page could be tricked into showing cannot run. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
  "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

interface FrameProps {
  title: string;
  section?: Section | undefined;
  /** Null before login. */
  here: Here | null;
  notice?: Notice | null;
  sandbox?: boolean;
  /** When the minute cron last came; left out, it is not told. */
  heartbeat?: number | null;
  charts?: boolean;
  children?: Child;
}

const Frame: FC<FrameProps> = ({
  title,
  section,
  here,
  notice,
  sandbox,
  heartbeat = null,
  charts,
  children,
}) => (
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta name="color-scheme" content="light dark" />
      <title>{`${title} · Vantage`}</title>
      <link rel="icon" href={ICON} />
      <link rel="stylesheet" href={ASSETS.style.path} />
      {charts && <link rel="stylesheet" href={ASSETS.chartStyle.path} />}
      {charts && <script src={ASSETS.chartPackage.path} defer />}
      {charts && <script src={ASSETS.chart.path} defer />}
      <script src={ASSETS.script.path} defer />
    </head>
    <body>
      <a class="skip" href="#content">
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href="/overview">
          <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
            <path d="M3 4l9 16 9-16" fill="none" stroke="currentColor" stroke-width="2.6" />
            <path d="M8.5 4L12 10.5 15.5 4" fill="none" stroke="currentColor" stroke-width="2" />
          </svg>
          Vantage
        </a>
        {sandbox && (
          <span class="pill sandbox" title="The store holds sandbox data, not a market's">
            Sandbox data
          </span>
        )}
        {here && <Navigation section={section} here={here} />}
      </header>
      <main id="content" tabindex={-1}>
        {here && <SilenceBanner last={heartbeat} now={here.now} />}
        {notice && (
          <p class={`notice ${notice.kind}`} role="status">
            <span aria-hidden="true">{notice.kind === "done" ? "✓" : "!"}</span> {notice.text}
          </p>
        )}
        {children}
      </main>
      <footer class="bottom">
        {here && <ClockForm here={here} />}
        <a href="/docs">Operator API</a>
        <span id="live-state" role="status" />
      </footer>
    </body>
  </html>
);

const ICON =
  "data:image/svg+xml," +
  encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path d="M3 4l9 16 9-16" ' +
      'fill="none" stroke="#3b82c4" stroke-width="3.4"/></svg>',
  );

const Navigation: FC<{ section: Section | undefined; here: Here }> = ({ section, here }) => (
  <>
    <nav aria-label="Console">
      <ul>
        {SECTIONS.map((one) => (
          <li>
            <a href={one.path} aria-current={one.section === section ? "page" : undefined}>
              {one.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
    <Form here={here} action="/logout" class="logout">
      <button type="submit" class="quiet" title={`Logged in as ${here.operator}`}>
        Log out
      </button>
    </Form>
  </>
);

/** Which clock comes first on every page of this browser; its own zone is known to its script. */
const ClockForm: FC<{ here: Here }> = ({ here }) => {
  const isOwn = here.clock !== "utc" && here.clock !== "market";
  const own = isOwn ? here.clock : "";
  return (
    <Form here={here} action="/clock" class="clock" label="Clock">
      <input type="hidden" name="back" value={here.path} />
      <label>
        Times by the clock of
        <select name="clock">
          <option value="utc" selected={here.clock === "utc"}>
            UTC
          </option>
          <option value="market" selected={here.clock === "market"}>
            the market
          </option>
          <option value={own} selected={isOwn} hidden={!isOwn} data-own-zone="">
            {own}
          </option>
        </select>
      </label>
      <button type="submit" class="quiet">
        Set
      </button>
    </Form>
  );
};

/** Keeps the clock that a reader chose; one that is no zone is left as it was. */
export function chooseClock(context: PageContext, chosen: string): boolean {
  const clock = chosen === "utc" || chosen === "market" ? chosen : zoneNamed(chosen);
  if (clock === null) return false;
  setCookie(context, CLOCK_COOKIE, clock, { ...cookieOptions(context), maxAge: CLOCK_SECONDS });
  return true;
}

function clockOf(context: Context): Clock {
  const chosen = getCookie(context, CLOCK_COOKIE) ?? "utc";
  return chosen === "utc" || chosen === "market" ? chosen : (zoneNamed(chosen) ?? "utc");
}

/** A form that changes something; it carries its session's token. */
export const Form: FC<{
  here: Here;
  action: string;
  class?: string;
  label?: string;
  children?: Child;
}> = ({ here, action, label, children, class: name }) => (
  <form method="post" action={action} class={name} aria-label={label}>
    <input type="hidden" name="form_token" value={here.token} />
    {children}
  </form>
);

/** A page of a session: its title, its section of the navigation, and its content. */
export interface View {
  title: string;
  section?: Section;
  charts?: boolean;
  /** 422 where the page says what was wrong with what it was asked. */
  status?: 200 | 422;
  body: (here: Here) => Child;
}

/** Headers of every page, whoever may see it. */
export function securePage(context: Context) {
  context.header("Content-Security-Policy", POLICY);
  context.header("X-Frame-Options", "DENY");
  context.header("Cross-Origin-Opener-Policy", "same-origin");
  context.header("Permissions-Policy", "camera=(), microphone=(), geolocation=()");
  context.header("Cache-Control", "no-store");
}

function pathOf(context: Context): string {
  const url = new URL(context.req.url);
  url.searchParams.delete("fragment");
  return url.pathname + url.search;
}

/** Answers with a page of the session; `?fragment=1` with its content alone, for live refresh. */
export async function show(context: PageContext, view: View): Promise<Response> {
  const { ingest } = context.var.service;
  const session = context.var.session;
  const token = await formToken(session);
  const operator = session.operator.name;
  const clock = clockOf(context);
  const here = { now: ingest.clock(), token, operator, path: pathOf(context), clock };
  securePage(context);
  const body = <ClockContext.Provider value={clock}>{view.body(here)}</ClockContext.Provider>;
  if (context.req.query("fragment") !== undefined) return context.html(html`${body}`);
  const [{ sandbox }, heartbeat, notice] = await Promise.all([
    ingest.store.overview(),
    lastMinute(ingest.database),
    takeNotice(context),
  ]);
  const { title, section, charts = false, status = 200 } = view;
  const frame = { title, section, here, notice, sandbox, heartbeat, charts };
  return context.html(framed(frame, body), status);
}

/** A page for those who are not logged in. */
export function showBare(context: Context, title: string, body: Child, status: number) {
  securePage(context);
  return context.html(framed({ title, here: null }, body), status as 200);
}

/** Replaces an answer that failed by a page, keeping its status. */
export async function showInstead(context: PageContext, title: string, body: Child) {
  securePage(context);
  const { session, service } = context.var;
  const here = session && {
    now: service.ingest.clock(),
    token: await formToken(session),
    operator: session.operator.name,
    // A form's address has no page to come back to.
    path: context.req.method === "GET" ? pathOf(context) : "/overview",
    clock: clockOf(context),
  };
  const page = await framed({ title, here }, body);
  const headers = { "Content-Type": "text/html; charset=UTF-8" };
  context.res = new Response(String(page), { status: context.res.status, headers });
}

const framed = (frame: FrameProps, body: Child) =>
  html`<!doctype html>${<Frame {...frame}>{body}</Frame>}`;

async function takeNotice(context: PageContext): Promise<Notice | null> {
  const cookie = getCookie(context, NOTICE_COOKIE);
  if (cookie === undefined) return null;
  deleteCookie(context, NOTICE_COOKIE, { path: "/" });
  return readNotice(context.var.session, cookie);
}

/** Sends the browser on after a form, with something to say there. */
export async function goOn(
  context: PageContext,
  path: string,
  text: string,
  kind: Notice["kind"] = "done",
): Promise<Response> {
  const notice = { kind, text };
  const value = await writeNotice(context.var.session, notice);
  setCookie(context, NOTICE_COOKIE, value, { ...cookieOptions(context), maxAge: NOTICE_SECONDS });
  return context.redirect(path, 303);
}

/** No script reads our cookies and no other site has them sent. */
export const cookieOptions = (context: Context) => ({
  path: "/",
  httpOnly: true,
  sameSite: "Strict" as const,
  secure: new URL(context.req.url).protocol === "https:",
});
