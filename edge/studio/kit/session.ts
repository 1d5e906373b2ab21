// The person who is signed in. The session is the browser's cookie, which no program can read; the
// service tells whose it is.

import { computed, signal } from "@preact/signals";
import type { Role, User } from "../../../shared/wire/vision.ts";
import { ApiError, access, call } from "./api.ts";

/** A person as the service tells it to a browser. */
type Person = User & { form_token: string | null };

/** Who is signed in: undefined until the service told, null for nobody. */
export const person = signal<User | null | undefined>(undefined);
/** Whether the sign-in is shown: over the page, where a session ended beneath it. */
export const isSignInShown = signal(false);

let regained: PromiseWithResolvers<void> | null = null;

access.regain = () => {
  regained ??= Promise.withResolvers<void>();
  access.formToken = null;
  isSignInShown.value = true;
  return regained.promise;
};

/** Takes up the session of a person, who goes on where the page stands. */
function begin({ form_token: formToken, ...user }: Person): void {
  if (person.value && person.value.id !== user.id) {
    // What the person before had under way must not be sent as this one's.
    regained?.reject(new ApiError("Somebody else signed in.", { status: 401 }));
    regained = null;
    location.assign("/studio");
    return;
  }
  access.formToken = formToken;
  person.value = user;
  isSignInShown.value = false;
  regained?.resolve();
  regained = null;
}

access.renew = async () => begin(await call<Person>("/auth/me", { isSignIn: true }));

/** Asks the service who is signed in. */
export async function loadSession(): Promise<void> {
  try {
    begin(await call<Person>("/auth/me", { isSignIn: true }));
  } catch (thrown) {
    if (!(thrown instanceof ApiError) || thrown.status !== 401) throw thrown;
    person.value = null;
    isSignInShown.value = true;
  }
}

/** What a person types to get in. */
export interface Credentials {
  email: string;
  password: string;
}

/**
 * Begins a session. Fails with the service's words, and with `cookie_refused` where the browser
 * keeps no cookie of this address.
 */
export async function signIn(credentials: Credentials): Promise<void> {
  await call<Person>("/auth/session", {
    method: "POST",
    body: credentials,
    isSignIn: true,
  });
  const seen = await call<Person>("/auth/me", { isSignIn: true }).catch((thrown: unknown) => {
    if (!(thrown instanceof ApiError) || thrown.status !== 401) throw thrown;
    throw new ApiError(
      "This browser keeps no session here: over plain http, cookies of a session are kept on " +
        "localhost alone. Open the Studio over https, or on the machine itself as " +
        `http://localhost:${location.port}/studio.`,
      { status: 401, code: "cookie_refused" },
    );
  });
  begin(seen);
}

/** Makes an account and begins its session. */
export async function register(
  account: Credentials & { display_name: string; invitation?: string },
): Promise<void> {
  const { invitation, ...rest } = account;
  const body = invitation ? { ...rest, invitation } : rest;
  await call("/auth/register", { method: "POST", body, isSignIn: true });
  await signIn({ email: account.email, password: account.password });
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await call("/auth/session", { method: "DELETE", isSignIn: true });
  access.formToken = null;
  location.assign("/studio");
}

const ORDER: readonly Role[] = ["viewer", "annotator", "engineer", "admin"];

/** The workspaces in which the person has at least this role. */
export const workspacesWith = (role: Role) =>
  (person.value?.workspaces ?? []).filter((one) => covers(one.role, role));

/** Whether the person has at least this role in a workspace. */
export const may = (role: Role, workspaceId: string | undefined): boolean =>
  workspacesWith(role).some((one) => one.workspace_id === workspaceId);

const covers = (held: Role, needed: Role) => ORDER.indexOf(held) >= ORDER.indexOf(needed);

/** The letters that stand for the person. */
export const initials = computed(() =>
  (person.value?.display_name ?? "")
    .split(/\s+/)
    .map((word) => word.slice(0, 1))
    .join("")
    .slice(0, 2)
    .toUpperCase(),
);
