// The readable API page: one self-contained HTML document rendered from the OpenAPI description.
// No script, no external asset; its style is allowed by the policy below and by nothing else.

import { html, raw } from "hono/html";

/** The Content-Security-Policy of the API page. */
export const PAGE_POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: light-dark(#0b5fa5, #7cc0ff) }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem }
h1 { margin: .5rem 0 } h2 { border-top: 1px solid var(--line); margin: 2rem 0 .5rem; padding-top: 1rem }
h2 code { font-size: 1.05rem; overflow-wrap: anywhere } .method { color: var(--accent); font-weight: 700 }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .5rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top }
pre { background: var(--soft); overflow-x: auto; padding: .7rem; border-radius: .4rem }
a { color: var(--accent) } nav li { margin: .2rem 0 } .soft { opacity: .75 }
`;

type Json = Record<string, unknown>;

/** What the page reads of an OpenAPI 3.1 document. */
interface Description {
  info: { title: string; description?: string; version: string };
  paths?: Record<string, unknown>;
  components?: { schemas?: Record<string, unknown> };
}

interface Operation {
  summary?: string;
  description?: string;
  security?: unknown[];
  parameters?: {
    name: string;
    in: string;
    required?: boolean;
    description?: string;
    schema?: Json;
  }[];
  requestBody?: { content?: Record<string, { schema?: Json }> };
  responses?: Record<string, { description: string; content?: Record<string, { schema?: Json }> }>;
}

/** The whole page for an OpenAPI document; examples ask the service at `baseUrl`. */
export function apiPage(document: Description, baseUrl: string) {
  const operations = Object.entries(document.paths ?? {}).flatMap(([path, methods]) =>
    Object.entries(methods as Record<string, Operation>).map(([method, operation]) => ({
      path,
      method: method.toUpperCase(),
      operation,
      anchor: `${method}-${path.replace(/\W+/g, "-")}`,
    })),
  );
  const { title, description, version } = document.info;
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" /><meta name="viewport" content="width=device-width" />
        <title>${title}</title><style>${raw(STYLE)}</style>
      </head>
      <body>
        <h1>${title}</h1>
        ${(description ?? "").split("\n\n").map((paragraph) => html`<p>${prose(paragraph)}</p>`)}
        <p class="soft">Version ${version} · <a href="/openapi.json">openapi.json</a></p>
        <nav><ul>${operations.map(
          ({ anchor, method, path, operation }) => html`<li><a href="#${anchor}"><span
            class="method">${method}</span> <code>${path}</code></a> ${prose(operation.summary)}</li>`,
        )}</ul></nav>
        ${operations.map((one) => section(one, baseUrl))}
        <h2>Shapes</h2>
        ${Object.entries(document.components?.schemas ?? {}).map(
          ([name, schema]) => html`<h3 id="shape-${name}">${name}</h3>${fields(schema as Json)}`,
        )}
      </body>
    </html>`;
}

/** An operation with its address, and its anchor on the page. */
interface Endpoint {
  anchor: string;
  method: string;
  path: string;
  operation: Operation;
}

/** Text with `code` between backticks, as the descriptions write it. */
const prose = (text = "") =>
  text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

/** A request that works as it stands: the required parameters with their examples. */
function exampleOf({ path, operation }: Endpoint, baseUrl: string): string {
  const query = (operation.parameters ?? [])
    .filter((parameter) => parameter.in === "query" && parameter.required)
    .map(({ name, schema }) => `${name}=${String(schema?.example ?? "…")}`);
  return `curl '${baseUrl}${path}${query.length > 0 ? `?${query.join("&")}` : ""}'`;
}

function section(endpoint: Endpoint, baseUrl: string) {
  const { anchor, method, path, operation } = endpoint;
  const parameters = operation.parameters ?? [];
  return html`<section id="${anchor}">
    <h2><code><span class="method">${method}</span> ${path}</code></h2>
    <p>${prose(operation.summary)}</p>
    ${(operation.description ?? "").split("\n\n").map((text) => (text ? html`<p>${prose(text)}</p>` : ""))}
    ${
      parameters.length
        ? html`<table><thead><tr><th>Parameter</th><th>In</th><th></th><th>Meaning</th></tr></thead>
      <tbody>${parameters.map(
        (parameter) => html`<tr><td><code>${parameter.name}</code></td>
        <td>${parameter.in}</td><td>${parameter.required ? "required" : "optional"}</td>
        <td>${prose(parameter.description)}</td></tr>`,
      )}</tbody></table>`
        : ""
    }
    ${Object.values(operation.requestBody?.content ?? {}).map(({ schema }) => html`<p>Body</p>${fields(schema ?? {})}`)}
    ${method === "GET" ? html`<pre>${exampleOf(endpoint, baseUrl)}</pre>` : ""}
    <table><thead><tr><th>Status</th><th>Answer</th><th>Shape</th></tr></thead>
      <tbody>${Object.entries(operation.responses ?? {}).map(
        ([status, response]) => html`<tr>
        <td>${status}</td><td>${prose(response.description)}</td>
        <td>${shape(Object.values(response.content ?? {})[0]?.schema)}</td></tr>`,
      )}</tbody></table>
  </section>`;
}

/** A schema's short name; named shapes link to their table. */
function shape(schema: Json | undefined): unknown {
  if (!schema) return "";
  if (typeof schema.$ref === "string") {
    const name = schema.$ref.split("/").at(-1) ?? "";
    return html`<a href="#shape-${name}">${name}</a>`;
  }
  if (schema.type === "array") return html`array of ${shape(schema.items as Json)}`;
  if (Array.isArray(schema.enum)) return schema.enum.join(" | ");
  if (Array.isArray(schema.anyOf)) {
    return schema.anyOf.map((one, index) => html`${index ? " or " : ""}${shape(one as Json)}`);
  }
  return Array.isArray(schema.type) ? schema.type.join(" or ") : String(schema.type ?? "any");
}

function fields(schema: Json): unknown {
  const properties = Object.entries((schema.properties ?? {}) as Record<string, Json>);
  if (properties.length === 0) return html`<p>${shape(schema)}</p>`;
  const required = new Set((schema.required ?? []) as string[]);
  return html`<table><thead><tr><th>Field</th><th>Type</th><th></th><th>Meaning</th></tr></thead>
    <tbody>${properties.map(
      ([name, property]) => html`<tr><td><code>${name}</code></td>
      <td>${shape(property)}</td><td>${required.has(name) ? "" : "optional"}</td>
      <td>${prose(property.description as string | undefined)}</td></tr>`,
    )}</tbody></table>`;
}
