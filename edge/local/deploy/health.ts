// Whether the deployed services are well, asked at the addresses that people reach them by.

import type { ServiceName } from "../workers.ts";
import type { Cloudflare } from "./cloudflare.ts";
import type { Check } from "./findings.ts";
import type { DeployEnvironment, WantedWorker } from "./requirements.ts";

const ANSWER_MS_MAX = 10_000;
const PAUSE_MS = 2_000;

/** Where a service is reached: an address that is given, its domain, or workers.dev. */
export async function addressOf(
  environment: DeployEnvironment,
  { service, domain, script }: WantedWorker,
  cloudflare: Cloudflare | null,
): Promise<string | undefined> {
  const given = environment[`ADDRESS_${service.toUpperCase()}`];
  if (given) return given.replace(/\/$/, "");
  if (domain !== undefined) return `https://${domain}`;
  const subdomain = await cloudflare?.subdomain().catch(() => null);
  return subdomain ? `https://${script}.${subdomain}.workers.dev` : undefined;
}

async function askHealth(address: string): Promise<{ isWell: boolean; detail: string }> {
  try {
    const response = await fetch(`${address}/healthz`, {
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    });
    const body: unknown = await response.json().catch(() => null);
    const { status, detail, code } = (body ?? {}) as Record<string, unknown>;
    if (response.ok && status === "ok") return { isWell: true, detail: `ok at ${address}` };
    const told = [response.status, status ?? code, detail].filter((one) => one !== undefined);
    return { isWell: false, detail: `${told.join(", ")} at ${address}` };
  } catch (thrown) {
    const { name, cause } = thrown as Error & { cause?: { code?: string } };
    return { isWell: false, detail: `${address} does not answer (${cause?.code ?? name})` };
  }
}

/** Asks a service until it is well, or until so many seconds have passed. */
export async function checkHealth(
  service: ServiceName,
  address: string | undefined,
  secondsMax: number,
): Promise<Check> {
  const subject = `health of ${service}`;
  if (address === undefined) {
    const remedy = `set DOMAIN_${service.toUpperCase()}, or a name under workers.dev in the dashboard`;
    return { subject, finding: "unknown", detail: "no address is known", remedy };
  }
  const end = Date.now() + secondsMax * 1_000;
  for (;;) {
    const { isWell, detail } = await askHealth(address);
    if (isWell) return { subject, finding: "right", detail };
    if (Date.now() >= end) {
      const remedy = `npx wrangler tail --env ${service}, while ${address}/healthz is asked`;
      return { subject, finding: "different", detail, remedy };
    }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
}
