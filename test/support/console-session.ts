// A session of the console's pages without a browser.

/** Signs in with a token; reads pages, and posts forms with the session's own form token. */
export async function consoleSession(url: string, token: string) {
  const login = await fetch(`${url}/login`, {
    method: "POST",
    body: new URLSearchParams({ token }),
    redirect: "manual",
  });
  const cookie = login.headers.get("Set-Cookie")?.split(";")[0] ?? "";
  const read = async (path: string) =>
    (await fetch(url + path, { headers: { Cookie: cookie } })).text();
  const [, form = ""] = /name="form_token" value="([^"]+)"/.exec(await read("/alerts")) ?? [];
  const post = (path: string, fields: Record<string, string> = {}) =>
    fetch(url + path, {
      method: "POST",
      headers: { Cookie: cookie },
      body: new URLSearchParams({ form_token: form, ...fields }),
      redirect: "manual",
    });
  return { read, post };
}
