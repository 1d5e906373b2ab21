// The Studio: its pages by their addresses, and the frame around them.

import { type ComponentType, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, apiErrorOf } from "./kit/api.ts";
import { KEYMAP, type KeyName } from "./kit/keymap.ts";
import { useKeys } from "./kit/keys.ts";
import { address, HOME, match, startRouter } from "./kit/router.ts";
import { initials, isSignInShown, loadSession, person, signOut } from "./kit/session.ts";
// All of it at once: esbuild loads no style with a page that is loaded later.
import "./kit/style.css";
import "./projects/projects.css";
import "./label/label.css";
import "./jobs/job.css";
import { nextTheme, showTheme } from "./kit/theme.ts";
import { Button, Dialog, Empty, ErrorNote, Icon, Keys, Skeleton } from "./kit/widgets.tsx";
import { SignIn } from "./sign-in.tsx";

/** A page: its heading in the bar at the top, and the rest. */
interface PageModule {
  Page: ComponentType<{ parameters: Readonly<Record<string, string>> }>;
}

/** Each page's address and its code, which is loaded when it is opened. */
const PAGES: readonly (readonly [string, () => Promise<PageModule>])[] = [
  [HOME, () => import("./projects/project-list.tsx")],
  [`${HOME}/p/:project`, () => import("./projects/project.tsx")],
  [`${HOME}/j/:job`, () => import("./jobs/job.tsx")],
  [`${HOME}/label`, () => import("./label/label-form.tsx")],
];

/** The page of an address, or null where there is none. */
function pageOf(path: string) {
  for (const [pattern, load] of PAGES) {
    const parameters = match(pattern, path);
    if (parameters) return { pattern, load, parameters };
  }
  return null;
}

function CurrentPage() {
  const { path } = address.value;
  const found = pageOf(path);
  const [loaded, setLoaded] = useState<{ pattern: string; Page: PageModule["Page"] } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const pattern = found?.pattern;
  useEffect(() => {
    if (!found) return;
    let isLeft = false;
    setError(null);
    found.load().then(
      ({ Page }) => {
        if (!isLeft) setLoaded({ pattern: found.pattern, Page });
      },
      () => {
        const words = "The page's program cannot be loaded. A newer one may be there: load anew.";
        if (!isLeft) setError(new ApiError(words));
      },
    );
    return () => {
      isLeft = true;
    };
  }, [pattern]);
  const isShown = loaded !== null && loaded.pattern === pattern;
  useEffect(() => {
    // A page begins at its top for the keyboard too, unless it put the focus somewhere itself.
    if (document.activeElement === document.body) document.querySelector("main")?.focus();
  }, [path, isShown]);
  if (!found) {
    return (
      <main tabIndex={-1}>
        <Empty icon="search" title="There is no such page">
          <a class="button" href={HOME}>
            All projects
          </a>
        </Empty>
      </main>
    );
  }
  if (error) {
    return (
      <main tabIndex={-1}>
        <ErrorNote error={error} onRetry={() => location.reload()} />
      </main>
    );
  }
  if (!isShown) {
    return (
      <main tabIndex={-1}>
        <Skeleton lines={6} />
      </main>
    );
  }
  return <loaded.Page key={path} parameters={found.parameters} />;
}

function Rail({ onHelp }: { onHelp: () => void }) {
  return (
    <nav class="rail" aria-label="Main">
      <a class="logo" href={HOME} aria-label="Vantage Studio, start">
        <Icon name="scan-eye" size={17} />
      </a>
      <a
        href={HOME}
        aria-label="Projects"
        title="Projects"
        aria-current={address.value.path === HOME ? "page" : undefined}
      >
        <Icon name="folder-open" size={18} />
      </a>
      <a
        href="/docs"
        target="_blank"
        rel="noreferrer"
        aria-label="API reference"
        title="API reference"
      >
        <Icon name="book-open" size={18} />
      </a>
      <span class="space" />
      <button type="button" aria-label="All keys (?)" title="All keys (?)" onClick={onHelp}>
        <Icon name="keyboard" size={18} />
      </button>
      <button type="button" aria-label="Light or dark" title="Light or dark" onClick={nextTheme}>
        <Icon name="sun-moon" size={18} />
      </button>
      {person.value && (
        <button
          type="button"
          aria-label={`Sign out ${person.value.display_name}`}
          title={`${person.value.display_name} (${initials.value}): sign out`}
          onClick={() => void signOut()}
        >
          <Icon name="log-out" size={18} />
        </button>
      )}
    </nav>
  );
}

const SCOPES = {
  everywhere: "Everywhere",
  projects: "Projects",
  project: "A project",
  job: "A job",
} as const;

function Help({ onClose }: { onClose: () => void }) {
  // `Object.keys` does not keep the names of the table.
  const names = Object.keys(KEYMAP) as KeyName[];
  return (
    <Dialog title="Keys" onClose={onClose}>
      <h1>Keys</h1>
      {Object.entries(SCOPES).map(([scope, title]) => {
        const own = names.filter((name) => KEYMAP[name].scope === scope);
        if (own.length === 0) return null;
        return (
          <section key={scope}>
            <h2>{title}</h2>
            <dl class="key-list">
              {own.map((name) => (
                <div key={name}>
                  <dt>
                    <Keys name={name} />
                  </dt>
                  <dd>{KEYMAP[name].does}</dd>
                </div>
              ))}
            </dl>
          </section>
        );
      })}
      <Button onClick={onClose} kind="primary">
        Close
      </Button>
    </Dialog>
  );
}

function Studio() {
  const [isHelpShown, setHelp] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const load = () => {
    setError(null);
    loadSession().catch((thrown: unknown) => setError(apiErrorOf(thrown)));
  };
  useEffect(load, []);
  useKeys({ help: () => setHelp(true) });
  return (
    <div class="app">
      <Rail onHelp={() => setHelp(true)} />
      {person.value ? (
        <CurrentPage />
      ) : (
        <main tabIndex={-1}>
          {error ? <ErrorNote error={error} onRetry={load} /> : <Skeleton lines={6} />}
        </main>
      )}
      {isSignInShown.value && <SignIn />}
      {isHelpShown && <Help onClose={() => setHelp(false)} />}
    </div>
  );
}

showTheme();
startRouter();
const app = document.getElementById("app");
if (app) render(<Studio />, app);
