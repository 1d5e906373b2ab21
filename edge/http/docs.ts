// The readable API page: one self-contained HTML document rendered from the OpenAPI description.
// No external asset. Its one script, the search, is allowed by a nonce; without scripts the page is
// the whole list.

import { html, raw } from "hono/html";
import {
  curlOf,
  type Description,
  type Endpoint,
  endpointsOf,
  exampleRequest,
  type Json,
  type Parameter,
} from "./example-request.ts";

/** The Content-Security-Policy of the API page. */
export const pagePolicy = (nonce: string) =>
  `default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-${nonce}'; base-uri 'none'; ` +
  "frame-ancestors 'none'; form-action 'none'";

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: light-dark(#0b5fa5, #7cc0ff) }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem;
  overflow-wrap: anywhere }
h1 { margin: .5rem 0 } h2 { border-bottom: 2px solid var(--line); margin: 2.5rem 0 .5rem }
h3 { margin: 2rem 0 .3rem; font-size: 1.05rem } h4 { margin: 1rem 0 .3rem; font-size: .9rem }
.method { color: var(--accent); font-weight: 700 } .soft { opacity: .75 }
input { font: inherit; padding: .5rem .7rem; width: 100% }
dl { margin: .3rem 0 } dt { margin-top: .4rem } dd { margin: 0 0 0 1.2rem }
pre { background: var(--soft); padding: .7rem; border-radius: .4rem; white-space: pre-wrap;
  margin: .3rem 0; max-height: 30rem; overflow-y: auto }
a { color: var(--accent) } nav ul { list-style: none; padding: 0; margin: .2rem 0 }
nav li { margin: .3rem 0 } [hidden] { display: none }
`;

/** Hides what holds not every word that is looked for, and its line in the list. */
const SEARCH = `
const box = document.querySelector("input");
const find = () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const section of document.querySelectorAll("section")) {
    const text = section.textContent.toLowerCase();
    section.hidden = !words.every((word) => text.includes(word));
    document.querySelector('nav a[href="#' + section.id + '"]').parentElement.hidden = section.hidden;
  }
  for (const group of document.querySelectorAll(".group, nav div")) {
    group.hidden = !group.querySelector("section:not([hidden]), li:not([hidden])");
  }
};
box.parentElement.hidden = false;
box.addEventListener("input", find);
if (box.value) find();
`;

interface Section extends Endpoint {
  anchor: string;
}

interface Group {
  name: string;
  about: string;
  sections: Section[];
}

/** The routes by their first tag, in the order of the document's tags; the rest under "Others". */
function groupsOf(document: Description): Group[] {
  const about = new Map(document.tags?.map(({ name, description = "" }) => [name, description]));
  const groups = new Map<string, Section[]>([...about.keys()].map((name) => [name, []]));
  for (const endpoint of endpointsOf(document)) {
    const { method, path, operation } = endpoint;
    const name = operation.tags?.[0] ?? "Others";
    const slug = `${method.toLowerCase()}-${path.replace(/\W+/g, "-")}`;
    groups.set(name, [...(groups.get(name) ?? []), { ...endpoint, anchor: slug }]);
  }
  return [...groups]
    .filter(([, sections]) => sections.length > 0)
    .map(([name, sections]) => ({ name, about: about.get(name) ?? "", sections }));
}

/** The whole page for an OpenAPI document; examples ask the service at `baseUrl`. */
export function apiPage(
  document: Description,
  { baseUrl, nonce }: { baseUrl: string; nonce: string },
) {
  const { title, description, version } = document.info;
  const groups = groupsOf(document);
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" /><meta name="viewport" content="width=device-width" />
        <title>${title}</title><style>${raw(STYLE)}</style>
      </head>
      <body>
        <h1>${title}</h1>
        ${paragraphs(description)}
        <p class="soft">Version ${version} · <a href="/openapi.json">openapi.json</a></p>
        <p hidden><input type="search" placeholder="Search the routes"
          aria-label="Search the routes" autocomplete="off" /></p>
        <nav>${groups.map(
          ({ name, sections }) =>
            html`<div><h4>${name}</h4><ul>${sections.map(
              ({ anchor, method, path, operation }) => html`<li><a href="#${anchor}"><span
              class="method">${method}</span> <code>${path}</code></a> ${prose(operation.summary)}</li>`,
            )}</ul></div>`,
        )}</nav>
        ${groups.map(
          ({ name, about, sections }) => html`<div class="group"><h2>${name}</h2>
          ${paragraphs(about)}${sections.map((one) => section(one, document, baseUrl))}</div>`,
        )}
        <h2>Shapes</h2>
        ${Object.entries(document.components?.schemas ?? {}).map(
          ([name, schema]) => html`<h3 id="shape-${name}">${name}</h3>
          ${paragraphs((schema as Json).description as string)}${fields(schema as Json)}`,
        )}
        <script nonce="${nonce}">${raw(SEARCH)}</script>
      </body>
    </html>`;
}

/** Text with `code` between backticks, as the descriptions write it. */
const prose = (text = "") =>
  text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

const paragraphs = (text = "") =>
  text ? text.split("\n\n").map((part) => html`<p>${prose(part)}</p>`) : "";

function section(endpoint: Section, document: Description, baseUrl: string) {
  const { anchor, method, path, operation } = endpoint;
  const bodies = Object.entries(operation.requestBody?.content ?? {});
  return html`<section id="${anchor}">
    <h3><code><span class="method">${method}</span> ${path}</code></h3>
    <p>${prose(operation.summary)}</p>
    ${paragraphs(operation.description)}
    ${operation.parameters?.length ? html`<h4>Parameters</h4><dl>${operation.parameters.map(parameter)}</dl>` : ""}
    ${bodies.map(([type, { schema }]) => html`<h4>Body, <code>${type}</code></h4>${fields(schema ?? {})}`)}
    <h4>Example</h4>
    <pre>${curlOf(exampleRequest(endpoint, document), baseUrl)}</pre>
    ${exampleAnswer(endpoint)}
    <h4>Answers</h4>
    <dl>${Object.entries(operation.responses ?? {}).map(
      ([status, { description, content = {} }]) => html`<dt><strong>${status}</strong>
      ${Object.entries(content).map(
        ([type, { schema }]) =>
          html` <span class="soft"><code>${type}</code> ${shape(schema)}</span>`,
      )}</dt>
      <dd>${prose(description)}</dd>`,
    )}</dl>
    ${headerMeanings(endpoint, document)}
  </section>`;
}

/** What the headers of the good answers mean. */
function headerMeanings({ operation }: Endpoint, { components }: Description) {
  const good = Object.entries(operation.responses ?? {}).filter(([status]) => status < "400");
  const names = new Set(good.flatMap(([, { headers = {} }]) => Object.keys(headers)));
  return html`<h4>Headers of the answer</h4><dl>${[...names].map((name) => {
    const { description } = (components?.headers?.[name] ?? {}) as { description?: string };
    return html`<dt><code>${name}</code></dt><dd>${prose(description)}</dd>`;
  })}</dl>`;
}

/** The first answer of a good status that has an example. */
function exampleAnswer({ operation }: Endpoint) {
  const good = Object.entries(operation.responses ?? {}).filter(([status]) => status < "300");
  for (const [status, { content = {} }] of good) {
    const { example } = content["application/json"] ?? {};
    if (example === undefined) continue;
    return html`<p class="soft">${status}</p><pre>${JSON.stringify(example, null, 2)}</pre>`;
  }
  return "";
}

function parameter({ name, in: where, required, description, schema = {} }: Parameter) {
  const facts = [where, required ? "required" : "optional", ...boundsOf(schema)].join(", ");
  return html`<dt><code>${name}</code> <span class="soft">${shape(schema)}, ${facts}</span></dt>
    ${meaning(description, schema)}`;
}

/** The description and the example, as far as there are any. */
function meaning(description: string | undefined, { example }: Json) {
  const such = html` <span class="soft">Such as <code>${JSON.stringify(example)}</code></span>`;
  if (!description && example === undefined) return "";
  return html`<dd>${prose(description)}${example === undefined ? "" : such}</dd>`;
}

function boundsOf({ minimum, maximum, maxLength, default: fallback }: Json): string[] {
  const bounds =
    minimum === undefined
      ? []
      : [maximum === undefined ? `at least ${minimum}` : `${minimum} to ${maximum}`];
  if (maxLength !== undefined) bounds.push(`at most ${maxLength} characters`);
  return fallback === undefined ? bounds : [...bounds, `default ${JSON.stringify(fallback)}`];
}

/** A schema's short name; named shapes link to their table. */
function shape(schema: Json | undefined): unknown {
  if (!schema) return "";
  if (typeof schema.$ref === "string") {
    const name = schema.$ref.split("/").at(-1) ?? "";
    return html`<a href="#shape-${name}">${name}</a>`;
  }
  if (schema.type === "array") return html`array of ${shape(schema.items as Json)}`;
  if (Array.isArray(schema.enum)) return schema.enum.map(String).join(" | ");
  if (Array.isArray(schema.anyOf)) {
    return schema.anyOf.map((one, index) => html`${index ? " or " : ""}${shape(one as Json)}`);
  }
  if (schema.format === "binary") return "bytes";
  return Array.isArray(schema.type) ? schema.type.join(" or ") : String(schema.type ?? "any");
}

/** The fields of an object, with those of the objects in it that have no name of their own. */
function fields(schema: Json): unknown {
  const properties = Object.entries((schema.properties ?? {}) as Record<string, Json>);
  if (properties.length === 0) return html`<p>${shape(schema)}</p>`;
  const required = new Set((schema.required ?? []) as string[]);
  return html`<dl>${properties.map(([name, property]) => {
    const facts = [...(required.has(name) ? [] : ["optional"]), ...boundsOf(property)].join(", ");
    const inner = [property, (property.items ?? {}) as Json].find((one) => one.properties);
    return html`<dt><code>${name}</code> <span class="soft">${shape(property)}${
      facts ? `, ${facts}` : ""
    }</span></dt>${meaning(property.description as string, property)}
    ${inner ? html`<dd>${fields(inner)}</dd>` : ""}`;
  })}</dl>`;
}
