// A receiver of webhooks on the loopback. It answers as the test says and verifies every signature
// by the specification's own recipe, written here a second time.

import { createHmac } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll } from "vitest";

/** A message as it arrived. */
export interface Arrival {
  id: string;
  /** Whether its signature is right. */
  verified: boolean;
  /** Epoch milliseconds that it was signed at. */
  at: number;
  body: Record<string, unknown>;
}

export interface Receiver {
  url: string;
  arrivals: Arrival[];
  /** Answers a request; 204 unless the test says otherwise. Not answering hangs. */
  answer: (response: ServerResponse) => void;
}

const receivers: (() => void)[] = [];
afterAll(() => {
  for (const close of receivers.splice(0)) close();
});

export const accept = (response: ServerResponse) => response.writeHead(204).end();

/** Starts a receiver that checks with this secret: `whsec_` and base64, or plain text. */
export async function startReceiver(secret: string): Promise<Receiver> {
  const key = secret.startsWith("whsec_") ? Buffer.from(secret.slice(6), "base64") : secret;
  const receiver: Receiver = { url: "", arrivals: [], answer: accept };
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    const header = (name: string) => String(request.headers[name] ?? "");
    const [id, timestamp] = [header("webhook-id"), header("webhook-timestamp")];
    const expected = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`);
    receiver.arrivals.push({
      id,
      verified: header("webhook-signature") === `v1,${expected.digest("base64")}`,
      at: Number(timestamp) * 1_000,
      body: JSON.parse(body),
    });
    receiver.answer(response);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  receivers.push(() => {
    server.close();
    server.closeAllConnections();
  });
  receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  return receiver;
}

/** A service's environment whose alerts go to a receiver with this secret. */
export const alertsTo = (url: string, secret: string): Record<string, string> => ({
  ALERT_WEBHOOK_URL: url,
  ALERT_WEBHOOK_SECRET: secret,
  ALERT_WEBHOOK_PRIVATE: "true",
});
