// The vision service's routes for programs on this machine: JSON in, JSON out, refusals thrown.

/** Requests to `/api/v1`, by path below it. */
export interface VisionApi {
  get<Reply>(path: string): Promise<Reply>;
  post<Reply>(path: string, body: object): Promise<Reply>;
  patch<Reply>(path: string, body: object): Promise<Reply>;
  delete<Reply>(path: string): Promise<Reply>;
  /** The bytes behind an address that an answer named. */
  bytes(address: string): Promise<Uint8Array>;
  /** A WebSocket to such an address. */
  socket(address: string): WebSocket;
}

/** The routes of a service, under an access token where one is given. */
export function visionApi(url: string, token?: string): VisionApi {
  const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
  const checked = async (response: Response) => {
    if (response.ok) return response;
    const body = (await response.json().catch(() => ({}))) as { code?: string; detail?: string };
    const path = new URL(response.url).pathname;
    throw new Error(`${path}: ${response.status} ${body.code ?? ""}: ${body.detail ?? ""}`);
  };
  const send = async <Reply>(method: string, path: string, body?: object): Promise<Reply> => {
    const form = body instanceof FormData;
    const type: Record<string, string> =
      body && !form ? { "Content-Type": "application/json" } : {};
    const payload = body === undefined ? {} : { body: form ? body : JSON.stringify(body) };
    const address = `${url}/api/v1${path}`;
    const response = await fetch(address, { method, headers: { ...headers, ...type }, ...payload });
    const text = await (await checked(response)).text();
    return (text === "" ? null : JSON.parse(text)) as Reply;
  };
  return {
    get: (path) => send("GET", path),
    post: (path, body) => send("POST", path, body),
    patch: (path, body) => send("PATCH", path, body),
    delete: (path) => send("DELETE", path),
    async bytes(address) {
      const response = await fetch(new URL(address, url), { headers });
      return (await checked(response)).bytes();
    },
    socket: (address) => new WebSocket(new URL(address, url)),
  };
}
