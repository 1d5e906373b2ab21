// Requests of a series to paste into a program, for the languages and frame libraries that people
// read it with.

import type { FC } from "hono/jsx";

interface SnippetsProps {
  url: string;
  library: string;
  symbol: string;
  asOf: string | null;
}

/** Ready to paste; the pinned `as_of` makes each answer the same ever after. */
export const Snippets: FC<SnippetsProps> = (props) => (
  <section aria-labelledby="snippets">
    <h2 id="snippets">Use it</h2>
    <p class="soft">
      With this <code>as_of</code> the answer is the same ever after. The key is needed only where
      the read API asks for one.
    </p>
    {Object.entries(snippetsOf(props)).map(([language, code]) => (
      <div class="snippet">
        <div class="head">
          <h3>{language}</h3>
          <button type="button" class="quiet" data-copy={`snippet-${language}`} hidden>
            Copy
          </button>
        </div>
        <pre id={`snippet-${language}`} tabindex={0}>
          <code>{code}</code>
        </pre>
      </div>
    ))}
  </section>
);

function snippetsOf({ url, library, symbol, asOf }: SnippetsProps) {
  const base = url.replace(/\/$/, "");
  const query = new URLSearchParams({ library, symbol, ...(asOf ? { as_of: asOf } : {}) });
  const quoted = (text: string) => JSON.stringify(text);
  const pinned = asOf ?? "";
  return {
    curl: `curl -fsS -H "X-API-Key: $KEY" \\\n  '${base}/series?${query}&format=csv'`,
    Python: [
      "import os, pandas as pd, requests",
      "",
      `answer = requests.get(${quoted(`${base}/series`)}, timeout=60,`,
      `    params={"library": ${quoted(library)}, "symbol": ${quoted(symbol)}, "as_of": ${quoted(pinned)}},`,
      '    headers={"X-API-Key": os.environ.get("KEY", "")})',
      "answer.raise_for_status()",
      "rows = pd.DataFrame(answer.json())",
      'rows["Datetime"] = pd.to_datetime(rows["Datetime"])',
    ].join("\n"),
    polars: [
      "import os, polars as pl, requests",
      "",
      `url = ${quoted(`${base}/series?${query}&format=parquet`)}`,
      'answer = requests.get(url, headers={"X-API-Key": os.environ.get("KEY", "")}, timeout=60)',
      "answer.raise_for_status()",
      "rows = pl.read_parquet(answer.content)",
      "# Without a key, pl.scan_parquet(url) reads only the row groups that a filter needs.",
    ].join("\n"),
    DuckDB: [
      "INSTALL httpfs; LOAD httpfs;",
      "-- Where the read API asks for a key:",
      "-- CREATE SECRET (TYPE http, EXTRA_HTTP_HEADERS MAP {'X-API-Key': '…'});",
      `SELECT * FROM read_parquet('${base}/series?${query}&format=parquet') ORDER BY "Datetime";`,
    ].join("\n"),
    R: [
      "library(httr2)",
      "",
      `rows <- request(${quoted(`${base}/series`)}) |>`,
      '  req_headers("X-API-Key" = Sys.getenv("KEY")) |>',
      `  req_url_query(library = ${quoted(library)}, symbol = ${quoted(symbol)}, as_of = ${quoted(pinned)}) |>`,
      "  req_perform() |>",
      "  resp_body_json(simplifyVector = TRUE)",
    ].join("\n"),
  };
}
