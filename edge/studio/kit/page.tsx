// The bar at the top of a page, with where it stands, and what the page can do.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Icon } from "./widgets.tsx";

interface TopProps {
  title: string;
  /** The page above this one. */
  parent?: { title: string; href: string } | undefined;
  /** Buttons at the right. */
  children?: ComponentChildren;
}

/** A page's bar; the window has its title too. */
export function Top({ title, parent, children }: TopProps) {
  useEffect(() => {
    document.title = `${title} · Vantage Studio`;
  }, [title]);
  return (
    <header class="top">
      <div class="crumbs">
        {parent && (
          <>
            <a class="parent" href={parent.href}>
              {parent.title}
            </a>
            <Icon name="chevron-right" size={14} />
          </>
        )}
        <h1>{title}</h1>
      </div>
      <span class="space" />
      {children}
    </header>
  );
}
