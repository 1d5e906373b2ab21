// The catalog graph: what there is, and what an instrument is connected to. It is read through the
// read API, like series.

import type { FC } from "hono/jsx";
import { z } from "zod";
import type { GraphEntity, GraphNeighbourhood } from "../../../shared/wire/markets.ts";
import type { MarketsClient } from "../../markets/client/client.ts";
import { Cell, Empty, Moment, Select } from "./components.tsx";
import type { View } from "./layout.tsx";
import { number, seriesPath } from "./words.ts";

/** What ingest records entities under. */
const LABELS = [
  "Library",
  "Provider",
  "BalancingAuthority",
  "Market",
  "SettlementPoint",
  "Region",
  "FuelType",
  "Commodity",
  "Instrument",
] as const;
const SHOWN = 300;
const DEPTHS = ["1", "2", "3"] as const;
/** The drawing's units, and how many neighbours it has room for. */
const SIZE = { width: 720, height: 300 };
const DRAWN = 14;

/** A label to list, or an instrument whose neighbourhood is shown. */
export const GraphQuery = z.object({
  label: z.string().trim().max(64).default("Library"),
  q: z.string().trim().max(200).default(""),
  instrument: z.string().trim().max(300).optional(),
  depth: z.enum(DEPTHS, { error: "must be 1, 2 or 3" }).default("1"),
});
type GraphQuery = z.output<typeof GraphQuery>;

/** The graph as a list of entities, or the neighbourhood of an instrument. */
export async function graphView(api: MarketsClient | null, query: GraphQuery): Promise<View> {
  if (!api) {
    return viewOf("Catalog graph", () => (
      <Empty title="No way to the read API">
        This console has no binding to it, so it can show no graph.
      </Empty>
    ));
  }
  const { instrument, label, q, depth } = query;
  if (instrument) {
    const found = await api.graphRelated({ instrument_id: instrument, depth: Number(depth) });
    return viewOf(instrument, () => <Neighbourhood found={found} depth={depth} />);
  }
  const all = await api.graphEntities({ label });
  const meant = q.toLowerCase();
  const entities = all.filter(({ key }) => key.toLowerCase().includes(meant));
  return viewOf("Catalog graph", () => (
    <>
      <p class="lead">
        What instruments there are, which library holds them, and what they are about; as it is now,
        without <code>as_of</code>.
      </p>
      <Filters query={query} />
      <Entities entities={entities} />
    </>
  ));
}

const viewOf = (title: string, content: () => ReturnType<FC>): View => ({
  title,
  section: "graph",
  body: () => (
    <>
      {title !== "Catalog graph" && (
        <p class="crumbs">
          <a href="/graph">Catalog graph</a>
        </p>
      )}
      <h1>{title}</h1>
      {content()}
    </>
  ),
});

const Filters: FC<{ query: GraphQuery }> = ({ query: { label, q } }) => (
  <form class="filters" method="get" action="/graph" aria-label="Filter entities">
    <Select label="Kind" name="label" options={[...new Set([...LABELS, label])]} value={label} />
    <label>
      Key holds
      <input type="search" name="q" value={q} maxlength={200} />
    </label>
    <button type="submit">Show</button>
  </form>
);

const instrumentPath = (id: string, depth = "1") =>
  `/graph?${new URLSearchParams({ instrument: id, depth })}`;

/** Where an entity leads; some lead nowhere further. */
const Name: FC<{ entity: { label: string; key: string } }> = ({ entity: { label, key } }) => {
  if (label === "Instrument") return <a href={instrumentPath(key)}>{key}</a>;
  if (label === "Library") return <a href={seriesPath(key)}>{key}</a>;
  return <span>{key}</span>;
};

const TIMES = ["first_seen", "last_seen"];

const Entities: FC<{ entities: readonly GraphEntity[] }> = ({ entities }) => {
  if (entities.length === 0) {
    return <Empty title="Nothing is recorded">Runs record what they write about.</Empty>;
  }
  return (
    <>
      {entities.length > SHOWN && (
        <p class="soft">
          The first {number(SHOWN)} of {number(entities.length)}: look for a part of the key.
        </p>
      )}
      <table class="stack">
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col">Properties</th>
            <th scope="col">First seen</th>
            <th scope="col">Last seen</th>
          </tr>
        </thead>
        <tbody>
          {entities.slice(0, SHOWN).map((entity) => (
            <tr>
              <th scope="row">
                <Name entity={entity} />
              </th>
              <Cell head="Properties">
                {Object.entries(entity.properties)
                  .filter(([name]) => !TIMES.includes(name))
                  .map(([name, value]) => `${name} ${String(value)}`)
                  .join(", ") || <span class="soft">–</span>}
              </Cell>
              <Cell head="First seen">
                <Moment at={entity.properties.first_seen} />
              </Cell>
              <Cell head="Last seen">
                <Moment at={entity.properties.last_seen} />
              </Cell>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
};

const Neighbourhood: FC<{ found: GraphNeighbourhood; depth: string }> = ({ found, depth }) => {
  const { instrument_id: id, entities, relations, siblings, truncated } = found;
  if (entities.length === 0) {
    return (
      <Empty title="The graph does not know it">
        An instrument is named <code>library.symbol</code>, or as its rows' instrument_id says.
      </Empty>
    );
  }
  const own = entities.find(({ label }) => label === "Library");
  return (
    <>
      <p class="pages">
        {DEPTHS.map((one) => (
          <a href={instrumentPath(id, one)} aria-current={one === depth ? "true" : undefined}>
            {one === "1" ? "1 hop" : `${one} hops`}
          </a>
        ))}
        {own && id.startsWith(`${own.key}.`) && (
          <a href={seriesPath(own.key, id.slice(own.key.length + 1))}>Its series</a>
        )}
      </p>
      {truncated && <p class="notice">There is more: the nearest are shown.</p>}
      <Star found={found} />
      <h2>Relations</h2>
      <table class="stack">
        <thead>
          <tr>
            <th scope="col">From</th>
            <th scope="col">Relation</th>
            <th scope="col">To</th>
          </tr>
        </thead>
        <tbody>
          {relations.slice(0, SHOWN).map(({ from, type, to }) => (
            <tr>
              <th scope="row">
                <Name entity={from} /> <small>{from.label}</small>
              </th>
              <Cell head="Relation">
                <code>{type}</code>
              </Cell>
              <Cell head="To">
                <Name entity={to} /> <small>{to.label}</small>
              </Cell>
            </tr>
          ))}
        </tbody>
      </table>
      {relations.length > SHOWN && <p class="soft">The first {number(SHOWN)} of them.</p>}
      {siblings.length > 0 && (
        <details open={siblings.length <= DRAWN} id="siblings">
          <summary>
            {number(siblings.length)} siblings: they share a place, commodity or fuel
          </summary>
          <ul class="tags">
            {siblings.slice(0, SHOWN).map((key) => (
              <li>
                <a href={instrumentPath(key)}>{key}</a>
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
};

/** The instrument in the middle and what is one hop away around it; the table says the same. */
const Star: FC<{ found: GraphNeighbourhood }> = ({ found: { instrument_id: id, entities } }) => {
  const near = entities.filter(({ distance }) => distance === 1).slice(0, DRAWN);
  const [x, y] = [SIZE.width / 2, SIZE.height / 2];
  const nodes = near.map((entity, index) => {
    const angle = (2 * Math.PI * index) / near.length - Math.PI / 2;
    return {
      entity,
      x: Math.round(x + Math.cos(angle) * (x - 130)),
      y: Math.round(y + Math.sin(angle) * (y - 30)),
    };
  });
  return (
    <svg class="star" viewBox={`0 0 ${SIZE.width} ${SIZE.height}`} aria-hidden="true">
      {nodes.map((node) => (
        <line x1={x} y1={y} x2={node.x} y2={node.y} />
      ))}
      {nodes.map((node) => (
        <g>
          <circle cx={node.x} cy={node.y} r="6" />
          <text x={node.x} y={node.y - 10}>
            {shortened(node.entity.key)}
          </text>
        </g>
      ))}
      <circle class="own" cx={x} cy={y} r="9" />
      <text x={x} y={y + 26}>
        {shortened(id)}
      </text>
    </svg>
  );
};

const KEY_SHOWN = 26;
const shortened = (key: string) => (key.length > KEY_SHOWN ? `${key.slice(0, KEY_SHOWN)}…` : key);
