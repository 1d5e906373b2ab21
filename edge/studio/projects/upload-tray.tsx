// The files on their way into a project, a line each, with what failed and what to do.

import { bytes, counted } from "../kit/format.ts";
import { Button, Icon, Progress } from "../kit/widgets.tsx";
import { clearEnded, drop, retry, type Upload, uploads } from "./uploads.ts";

const STATES: Readonly<Record<Upload["state"], string>> = {
  waiting: "waits",
  sending: "on its way",
  reconnecting: "connection lost, trying again",
  done: "there",
  failed: "failed",
  dropped: "given up",
};

/** The tray of a project; nothing where no file was chosen. */
export function UploadTray({ projectId }: { projectId: string }) {
  const own = uploads.value.filter((one) => one.projectId === projectId);
  if (own.length === 0) return null;
  const failed = own.filter(({ state }) => state === "failed").length;
  const done = own.filter(({ state }) => state === "done").length;
  const total = own.reduce((sum, one) => sum + one.bytes, 0);
  const sent = own.reduce((sum, one) => sum + one.sent, 0);
  return (
    <section class="card tray" aria-label="Uploads">
      <div class="heading">
        <h2>Uploads</h2>
        <span class="secondary" role="status">
          {done} of {counted(own.length, "file")}
          {failed > 0 && `, ${failed} failed`}
        </span>
        <span class="space" />
        {done > 0 && (
          <Button kind="quiet" onClick={clearEnded}>
            Clear what is there
          </Button>
        )}
      </div>
      <Progress value={total > 0 ? sent / total : 1} label="All uploads" />
      <ul>
        {own.map((one) => (
          <li key={one.id}>
            <span class="name">{one.name}</span>
            <span class={one.state === "failed" ? "bad" : "tertiary"}>
              {STATES[one.state]} · {bytes(one.bytes)}
            </span>
            <Action of={one} />
            {(one.state === "sending" || one.state === "reconnecting") && (
              <Progress value={one.bytes > 0 ? one.sent / one.bytes : 0} label={one.name} />
            )}
            {one.error && (
              <span class="problem bad">
                {one.error.message}
                {one.error.requestId && ` (request ${one.error.requestId})`}
              </span>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Action({ of: one }: { of: Upload }) {
  if (one.state === "done") return <Icon name="check" />;
  if (one.state === "failed" || one.state === "dropped") {
    return (
      <button type="button" aria-label={`Send ${one.name} again`} onClick={() => retry(one)}>
        <Icon name="rotate-ccw" size={14} />
      </button>
    );
  }
  return (
    <button type="button" aria-label={`Give up ${one.name}`} onClick={() => drop(one)}>
      <Icon name="x" size={14} />
    </button>
  );
}
