// Parts that pages are made of.

import type {
  AnchorHTMLAttributes,
  ButtonHTMLAttributes,
  ComponentChildren,
  InputHTMLAttributes,
} from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "./api.ts";
import type { IconName } from "./icon-names.ts";
import { KEYMAP, type KeyName } from "./keymap.ts";
import type { Resource } from "./resource.ts";

/** An icon beside words that say the same, so it has no name of its own. */
export const Icon = ({ name, size = 16 }: { name: IconName; size?: number }) => (
  <svg class="icon" aria-hidden="true" width={size} height={size}>
    <use href={`#icon-${name}`} />
  </svg>
);

/** The keys of an action, as a hint beside it. */
export const Keys = ({ name }: { name: KeyName }) => (
  <span class="keys" aria-hidden="true">
    {KEYMAP[name].keys.map((key) => (
      <kbd key={key}>{key}</kbd>
    ))}
  </span>
);

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & {
  icon?: IconName;
  kind?: "plain" | "primary" | "quiet" | "danger";
  /** The action whose key is shown. */
  keyName?: KeyName;
};

/** A button; of a form only where it says so. */
export const Button = ({ icon, kind = "plain", keyName, children, ...rest }: ButtonProps) => (
  <button type="button" {...rest} class={`button ${kind}`}>
    {icon && <Icon name={icon} size={15} />}
    {children}
    {keyName && <Keys name={keyName} />}
  </button>
);

/** A link that looks like a button. */
export const ButtonLink = ({
  icon,
  kind = "plain",
  keyName,
  children,
  ...rest
}: AnchorHTMLAttributes<HTMLAnchorElement> & Pick<ButtonProps, "icon" | "kind" | "keyName">) => (
  <a {...rest} class={`button ${kind}`}>
    {icon && <Icon name={icon} size={15} />}
    {children}
    {keyName && <Keys name={keyName} />}
  </a>
);

/** A page's place where nothing is yet: a sentence and what to do. */
export const Empty = ({ icon, title, children }: EmptyProps) => (
  <div class="empty">
    <Icon name={icon} size={28} />
    <h2>{title}</h2>
    <div class="secondary">{children}</div>
  </div>
);
interface EmptyProps {
  icon: IconName;
  title: string;
  children: ComponentChildren;
}

/** An error in plain words, with what names it in the service's log. */
export function ErrorNote({ error, onRetry }: { error: ApiError; onRetry?: () => void }) {
  const { role_needed: role } = error.data;
  const isRight = error.status === 403;
  const words = isRight && typeof role === "string" ? `This needs the role ${role}.` : null;
  return (
    <div class="note bad" role="alert">
      <p class="row">
        <Icon name={isRight ? "shield" : "triangle-alert"} />
        <b>{words ?? (error.status === 404 ? "There is nothing here for you." : "This failed.")}</b>
      </p>
      <p>{words ? "An administrator of the workspace can give it to you." : error.message}</p>
      <p class="row">
        {onRetry && !isRight && (
          <Button icon="rotate-ccw" onClick={onRetry}>
            Try again
          </Button>
        )}
        {error.requestId && <span class="tertiary mono">request {error.requestId}</span>}
      </p>
    </div>
  );
}

const SKELETON_MS = 150;
const clockOf = (instant: number) =>
  new Date(instant).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

/** What a resource holds, with the states of its absence. */
export function Shown<Data>({ of: resource, lines = 4, children }: ShownProps<Data>) {
  const { data, error, asOf, reload } = resource;
  if (data === undefined) {
    return error ? <ErrorNote error={error} onRetry={reload} /> : <Skeleton lines={lines} />;
  }
  return (
    <>
      {error && (
        <p class="stale" role="status">
          <Icon name="cloud-off" size={14} /> As of {clockOf(asOf ?? 0)}. {error.message}
        </p>
      )}
      {children(data)}
    </>
  );
}
interface ShownProps<Data> {
  of: Resource<Data>;
  /** Lines that stand for what comes. */
  lines?: number;
  children: (data: Data) => ComponentChildren;
}

/** Gray lines in the place of what comes, once it does not come at once. */
export function Skeleton({ lines }: { lines: number }) {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), SKELETON_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class={isLate ? "skeleton" : "skeleton waiting"} role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, line) => (
        <i key={line} />
      ))}
    </div>
  );
}

/** A dialog over the page; Escape, and a click beside it, close it where that is allowed. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  /** Whether the pointer was pressed beside the dialog, and not in a field of it. */
  const isBeside = useRef(false);
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape is a dialog's key, by onCancel.
    <dialog
      ref={ref}
      aria-label={title}
      // Browsers let Escape through where nobody clicked before: what must stay is shown again.
      onClose={() => (onClose ? onClose() : ref.current?.showModal())}
      onPointerDown={(event) => {
        isBeside.current = event.target === ref.current;
      }}
      onClick={(event) => {
        if (event.target === ref.current && isBeside.current) onClose?.();
      }}
    >
      <div class="dialog">{children}</div>
    </dialog>
  );
}
interface DialogProps {
  title: string;
  /** Without it the dialog stays until its work is done. */
  onClose?: () => void;
  children: ComponentChildren;
}

/** A field of a form with its label, and its error beneath. */
export const Field = ({ label, hint, ...rest }: FieldProps) => (
  <label class="field">
    <span>{label}</span>
    <input {...rest} />
    {hint && <small class="tertiary">{hint}</small>}
  </label>
);
type FieldProps = InputHTMLAttributes<HTMLInputElement> & { label: string; hint?: string };

/** A bar of what is done. */
export const Progress = ({ value, label }: { value: number; label: string }) => (
  <progress class="progress" max={1} value={value} aria-label={label} />
);
