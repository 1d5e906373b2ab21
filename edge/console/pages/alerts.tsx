// Alerts: what operators were told of, and whether the webhook took it.

import type { FC } from "hono/jsx";
import { z } from "zod";
import type { Alert } from "../../../shared/wire/alerts.ts";
import type { WebhookTarget } from "../../http/webhook.ts";
import { listAlerts } from "../../markets/ingest/alert-outbox.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { pipelineOf } from "../../markets/ingest/pipelines.ts";
import { Cell, Empty, Live, Moment, State } from "./components.tsx";
import { Form, type Here, type View } from "./layout.tsx";
import { distance, jobPath, number } from "./words.ts";

const PAGE = 50;

/** Which page of the list. */
export const AlertsQuery = z.object({ after: z.uuid("must be an alert's id").optional() });

/** The list of alerts, newest first, a page at a time. */
export async function alertsView(
  { database }: IngestParts,
  webhook: WebhookTarget | null,
  { after }: z.output<typeof AlertsQuery>,
): Promise<View> {
  const found = await listAlerts(database, { after, limit: PAGE + 1 });
  const alerts = found.slice(0, PAGE);
  const last = found.length > PAGE ? alerts.at(-1) : undefined;
  return {
    title: "Alerts",
    section: "alerts",
    body: (here) => (
      <>
        <h1>Alerts</h1>
        <p class="lead">
          A partition that failed or is late, a stale series or a failed check is one incident: told
          of once when it begins and once when it is over.
        </p>
        <Target webhook={webhook} here={here} />
        <Live name="alerts" every={after ? 60 : 15}>
          {alerts.length === 0 ? (
            <Empty title={after ? "No older alert" : "Nothing to tell"}>
              The minute's cron looks at what ended since the minute before.
            </Empty>
          ) : (
            <AlertTable alerts={alerts} now={here.now} />
          )}
          <p class="pages">
            {after && <a href="/alerts">Newest</a>}
            {last && (
              <a href={`/alerts?after=${last.alert_id}`} rel="next">
                Older
              </a>
            )}
          </p>
        </Live>
      </>
    ),
  };
}

/** Where alerts go; of the address only the host is shown, since the rest may be a secret. */
const Target: FC<{ webhook: WebhookTarget | null; here: Here }> = ({ webhook, here }) => {
  if (!webhook) {
    return (
      <p class="soft">
        They are recorded here and sent nowhere: <code>ALERT_WEBHOOK_URL</code> and{" "}
        <code>ALERT_WEBHOOK_SECRET</code> are not set.
      </p>
    );
  }
  return (
    <Form here={here} action="/alerts/test" class="actions">
      <span>
        They are sent to <code>{new URL(webhook.url.reveal()).host}</code>.
      </span>
      <button type="submit" class="quiet">
        Send a test
      </button>
    </Form>
  );
};

/** The sign and colour of a kind. */
const STATES: Readonly<Record<Alert["kind"], string>> = {
  failed: "failed",
  late: "late",
  stale: "warning",
  recovered: "succeeded",
  test: "skipped",
};

const DELIVERIES: Readonly<Record<Alert["delivery"], { state: string; words: string }>> = {
  pending: { state: "queued", words: "on its way" },
  delivered: { state: "succeeded", words: "delivered" },
  given_up: { state: "failed", words: "given up" },
  unsent: { state: "off", words: "not sent" },
};

const AlertTable: FC<{ alerts: readonly Alert[]; now: number }> = ({ alerts, now }) => (
  <table class="stack compact">
    <thead>
      <tr>
        <th scope="col">What</th>
        <th scope="col">Kind</th>
        <th scope="col">When</th>
        <th scope="col">Detail</th>
        <th scope="col">Webhook</th>
      </tr>
    </thead>
    <tbody>
      {alerts.map((alert) => (
        <tr id={`alert-${alert.alert_id}`}>
          <th scope="row">
            <Subject alert={alert} />
          </th>
          <Cell head="Kind">
            <State state={STATES[alert.kind]}>{alert.kind}</State>
            {alert.ended_at === null && <small>open</small>}
          </Cell>
          <Cell head="When">
            <Moment at={alert.created_at} />
            <small>{distance(alert.created_at, now)}</small>
          </Cell>
          <Cell head="Detail">
            {alert.error_code && <code>{alert.error_code}</code>} {alert.detail}
            {alert.run_id && (
              <small>
                <a href={`/runs/${alert.run_id}`}>its run</a>
              </small>
            )}
          </Cell>
          <Cell head="Webhook">
            <DeliveryState alert={alert} now={now} />
          </Cell>
        </tr>
      ))}
    </tbody>
  </table>
);

const Subject: FC<{ alert: Alert }> = ({ alert: { job, partition, series } }) => {
  if (job === null) return <span>test</span>;
  const title = pipelineOf(job)?.title ?? job;
  if (partition === null) return <a href={jobPath(job)}>{`${title} ${series ?? "check"}`}</a>;
  return (
    <a href={`${jobPath(job)}?partition=${partition}#partition`}>
      {title} <span class="number">{partition}</span>
    </a>
  );
};

const DeliveryState: FC<{ alert: Alert; now: number }> = ({ alert, now }) => {
  const { state, words } = DELIVERIES[alert.delivery];
  const { attempts, next_attempt_at: next, last_error: problem } = alert;
  return (
    <>
      <State state={state}>{words}</State>
      {attempts > 1 && <small>{number(attempts)} attempts</small>}
      {next && attempts > 0 && <small>again {distance(next, now)}</small>}
      {problem && <small>{problem}</small>}
    </>
  );
};
