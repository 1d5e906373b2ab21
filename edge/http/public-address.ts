// Which addresses a service may be sent to by its configuration or its users: public ones, so that
// nobody reaches a private network through it (SSRF).
//
// A Worker cannot pin the address that it resolved: between this check and the fetch a name may be
// pointed elsewhere (DNS rebinding). Deployed, what is left of that risk is small, since a Worker's
// fetch leaves from Cloudflare's edge, where no private network of ours is. On the local stack it
// leaves from the operator's machine, and reaches what that does.

import ipaddr from "ipaddr.js";
import { z } from "zod";

/** The addresses of a host name, IPv4 and IPv6; none where it has none. */
export type Resolve = (name: string) => Promise<string[]>;

const DNS_TIMEOUT_MS = 3_000;
/** The numbers of the record types in an answer; others, such as CNAME, stand beside them. */
const RECORD_TYPES = { A: 1, AAAA: 28 } as const;
/** Where all global unicast of IPv6 lies; what lies elsewhere is not routed today. */
const GLOBAL_IPV6 = ipaddr.IPv6.parseCIDR("2000::/3");

const DnsAnswer = z.object({
  Answer: z.array(z.object({ type: z.number(), data: z.string() })).default([]),
});

/** Whether an IP address is public: routed on the internet, and no gateway to what is not. */
export function isPublicAddress(text: string): boolean {
  if (!ipaddr.isValid(text)) return false;
  const address = ipaddr.parse(text);
  if (address.range() !== "unicast") return false;
  return address instanceof ipaddr.IPv4 || address.match(GLOBAL_IPV6);
}

/** What is wrong with a URL before anybody is asked for its host's addresses; null: nothing. */
export function urlProblem(
  text: string,
  { allowPrivate }: { allowPrivate: boolean },
): string | null {
  const url = URL.parse(text);
  if (!url) return "is no URL";
  const isSecure = url.protocol === "https:";
  if (!isSecure && !(allowPrivate && url.protocol === "http:"))
    return "does not begin with https://";
  if (url.username || url.password) return "holds credentials";
  const literal = literalOf(url);
  if (!allowPrivate && literal && !isPublicAddress(literal)) return "is not public";
  return null;
}

/**
 * What is wrong with the target of a URL, its host's addresses included: every one must be public.
 * Null: nothing. What it says names neither the URL nor an address.
 */
export async function targetProblem(text: string, resolve: Resolve): Promise<string | null> {
  const problem = urlProblem(text, { allowPrivate: false });
  if (problem) return problem;
  const url = new URL(text);
  if (literalOf(url)) return null;
  const addresses = await resolve(url.hostname).catch(() => null);
  if (!addresses) return "has a name that could not be resolved";
  if (addresses.length === 0) return "has a name without addresses";
  return addresses.every(isPublicAddress) ? null : "leads to an address that is not public";
}

/** The host as an IP address, in the plain spelling that `URL` brings every other one to. */
function literalOf({ hostname }: URL): string | null {
  const bare = hostname.replace(/^\[(.*)\]$/, "$1");
  return ipaddr.isValid(bare) ? bare : null;
}

/** Asks a resolver over HTTPS, in its JSON form, since a Worker has no other way to an address. */
export const resolverAt =
  (url: string): Resolve =>
  async (name) => {
    const answers = Object.entries(RECORD_TYPES).map(async ([type, number]) => {
      const response = await fetch(`${url}?${new URLSearchParams({ name, type })}`, {
        headers: { Accept: "application/dns-json" },
        signal: AbortSignal.timeout(DNS_TIMEOUT_MS),
      });
      if (!response.ok) throw new Error(`the resolver answered ${response.status}`);
      const { Answer } = DnsAnswer.parse(await response.json());
      return Answer.filter((record) => record.type === number).map(({ data }) => data);
    });
    return (await Promise.all(answers)).flat();
  };

/** Cloudflare's own resolver. */
export const publicResolver = resolverAt("https://cloudflare-dns.com/dns-query");
