// Addresses and pages. What a colleague should see is in the address; a page reads its parameters
// from there and writes changes back, so that links, the back button and reloads work.

import { signal } from "@preact/signals";

/** The address at which the Studio begins. */
export const HOME = "/studio";

/** An address of the Studio. */
export interface Address {
  path: string;
  query: URLSearchParams;
}

const current = (): Address => ({
  path: location.pathname.replace(/\/+$/, "") || "/",
  query: new URLSearchParams(location.search),
});

/** The address that is shown. */
export const address = signal<Address>(current());

/** Goes to an address of the Studio; `replace` leaves no step for the back button. */
export function go(href: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  const before = address.value.path;
  address.value = current();
  if (address.value.path !== before) {
    scrollTo(0, 0);
  }
}

/** Changes parameters of the address in place; an empty value takes one away. */
export function setQuery(changes: Readonly<Record<string, string | null>>): void {
  const query = new URLSearchParams(address.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const search = query.size > 0 ? `?${query}` : "";
  go(`${address.value.path}${search}`, { replace: true });
}

/** Has links of the Studio and the back button change the page without loading it anew. */
export function startRouter(): void {
  addEventListener("popstate", () => {
    address.value = current();
  });
  addEventListener("click", (event) => {
    const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey);
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!isPlain || event.defaultPrevented || !(link instanceof HTMLAnchorElement)) return;
    const { origin, pathname } = new URL(link.href);
    const isOwn = pathname === HOME || pathname.startsWith(`${HOME}/`);
    if (!isOwn || origin !== location.origin || link.target || link.download) return;
    event.preventDefault();
    go(link.href.slice(origin.length));
  });
}

/** The parameters of a path that a pattern such as `/studio/p/:project` meets, or null. */
export function match(pattern: string, path: string): Readonly<Record<string, string>> | null {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith(":")) {
      const name = decoded(value);
      if (name === null) return null;
      found[part.slice(1)] = name;
    } else if (part !== value) return null;
  }
  return found;
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
