// Answers of the vision service as its description shows them.

const SHOWN = "2026-01-31T05:20:00.000Z";
const NOBODYS = "6f1c2b9e-3d7a-4c55-8a10-000000000099";
const UUID = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** An answer without what differs from world to world; `code` stands for a code of a node. */
export const stable = (text: string, code: string) =>
  text
    .replace(/"(display_name|actor_name|invited_by)":"[0-9a-f-]{36}"/g, '"$1":"Ada"')
    .replace(/[0-9a-f-]{36}@example\.com/g, "ada@example.com")
    .replace(UUID, (uuid) => (uuid.startsWith(NOBODYS.slice(0, 8)) ? uuid : NOBODYS))
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, SHOWN)
    .replace(/ \d{4}-\d\d-\d\d"/g, ` ${SHOWN.slice(0, 10)}"`)
    .replace(/"((access|refresh|node|form)_token|ticket)":"[^"]{8}[^"]*"/g, '"$1":"eyJhbGciOiJI…"')
    .replace(/\?ticket=[^"]*/g, "?ticket=eyJhbGciOiJI")
    .replace(/\?[^"?]*X-Amz-[^"]*/g, "?X-Amz-Signature=0a1b2c3d")
    .replace(/\.[0-9a-f]{8}-1\./g, ".0a1b2c3d-1.")
    .replace(/\/(\d+)-[0-9a-f]{8}\//g, "/$1-0a1b2c3d/")
    .replace(/"code":"[^"]*","workspace_id"/, `"code":"${code}","workspace_id"`)
    .replace(/"(dataset_)?sha256":"[0-9a-f]{64}"/g, `"$1sha256":"${"ab12".repeat(16)}"`)
    .replace(/"(p50|p95|p99)":[\d.]+/g, '"$1":12.5')
    .replace(/"(vek|vdc|vdt|vni|vpr|vt)_[\w-]+"/g, '"$1_5bXkUu…"')
    .replace(/"ms":[\d.]+/g, '"ms":1')
    .replace(/"seconds":[\d.]+,"served_by":"worker"/g, '"seconds":0.002,"served_by":"worker"')
    .replace(/"next_s":[\d.]+/g, '"next_s":58.3')
    .replace(/target-[0-9a-f-]{36}/g, "south-gate")
    .replace(/127\.0\.0\.1:\d+/g, "127.0.0.1:8003")
    .replace(/"(database_)?latency_ms":[\d.]+/g, '"$1latency_ms":1.5')
    // A device's share of the first stages goes by its id, and a signature by all that is signed.
    .replace(/"bucket":\d+/g, '"bucket":1257')
    .replace(/"signature":"[\w-]{86}"/g, '"signature":"IfUtLig1Xs2U2cH_Ugc2q01UdK…"')
    .replace(/"oldest_queued_seconds":[\d.]+/, '"oldest_queued_seconds":12.5')
    .replace(/"entry_id":\d+/g, '"entry_id":42');
