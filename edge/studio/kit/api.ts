// Requests to the service. The browser sends the session's cookie; a request that changes something
// carries the session's form token too. A request that finds the session over waits until somebody
// signed in again, and is then sent once more: nothing that a page holds is lost.

const API = "/api/v1";

/** An error that the service answered, or its silence: then the status is 0. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly code: string;
  /** Names the request in the service's log; null where there was no answer. */
  readonly requestId: string | null;
  /** What the answer holds beside code and detail. */
  readonly data: Readonly<Record<string, unknown>>;

  constructor(
    detail: string,
    { status = 0, code = "unreachable", requestId = null as string | null, data = {} } = {},
  ) {
    super(detail);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.data = data;
  }
}

/** What was thrown, as the error that pages show. */
export const apiErrorOf = (thrown: unknown): ApiError =>
  thrown instanceof ApiError ? thrown : new ApiError(String(thrown));

/** How requests are let in; the session's module keeps it. */
export const access = {
  /** The form token of the session; null where nobody is signed in. */
  formToken: null as string | null,
  /** Asks for the form token of the session that the cookie is of by now. */
  renew: (): Promise<void> => Promise.reject(new Error("no session yet")),
  /** Resolves when somebody signed in again. */
  regain: (): Promise<void> => Promise.reject(new Error("no session yet")),
};

/** A request but for its path. */
export interface ApiRequest {
  method?: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Sent as JSON. */
  body?: unknown;
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
  /** Whether an ended session fails the request in place of opening a sign-in. */
  isSignIn?: boolean;
}

/** Sends a request and gives the answer. Fails with an `ApiError` for every status above 399. */
export async function send(path: string, request: ApiRequest = {}): Promise<Response> {
  for (let tries = 1; ; tries++) {
    const answer = await sendOnce(path, request);
    if (answer.ok) return answer;
    const error = await errorOf(answer);
    // Another tab may have opened a newer session, whose form token this one does not have yet.
    const isOld = error.code === "form_refused";
    if ((error.status !== 401 && !isOld) || request.isSignIn || tries > 1) throw error;
    await (isOld ? access.renew() : access.regain());
    request.signal?.throwIfAborted();
  }
}

/** Sends a request and gives the JSON of its answer; undefined for an answer without a body. */
export async function call<Answer>(path: string, request?: ApiRequest): Promise<Answer> {
  const answer = await send(path, request);
  // The service's own tests hold its answers to these types.
  return (answer.status === 204 ? undefined : await answer.json()) as Answer;
}

/** The address of a route with its query. */
export function addressOf(path: string, query: ApiRequest["query"] = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return `${API}${path}${given.length > 0 ? `?${search}` : ""}`;
}

function sendOnce(path: string, { method = "GET", query, body, headers, signal }: ApiRequest) {
  const init: RequestInit = {
    method,
    headers: {
      ...headers,
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...formHeader(method),
    },
    signal: signal ?? null,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  };
  return fetch(addressOf(path, query), init).catch((thrown: unknown) => {
    if (signal?.aborted) throw thrown;
    throw new ApiError("The service cannot be reached. Check the connection; this is tried again.");
  });
}

/** The header that a request by cookie must carry where it changes something. */
export const formHeader = (method: string): Record<string, string> =>
  method === "GET" || access.formToken === null ? {} : { "X-Form-Token": access.formToken };

/** The error that an answer tells, also where it is none of the service's own. */
export async function errorOf(answer: Pick<Response, "status" | "headers" | "text">) {
  const { status } = answer;
  const text = await answer.text().catch(() => "");
  const told = parsed(text);
  const { code, detail, request_id: requestId, ...data } = told;
  return new ApiError(typeof detail === "string" ? detail : `The service answered ${status}.`, {
    status,
    code: typeof code === "string" ? code : `http_${status}`,
    requestId: typeof requestId === "string" ? requestId : answer.headers.get("X-Request-Id"),
    data,
  });
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}
