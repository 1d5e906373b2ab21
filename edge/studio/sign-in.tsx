// Signing in and making an account: over the page, so that nothing on it is lost.

import { useState } from "preact/hooks";
import { type ApiError, apiErrorOf } from "./kit/api.ts";
import { person, register, signIn } from "./kit/session.ts";
import { Button, Dialog, ErrorNote, Field } from "./kit/widgets.tsx";

/** As `auth/passwords.ts` has it. */
const PASSWORD_MIN = 8;

/** The dialog that lets somebody in. */
export function SignIn() {
  const [isNew, setNew] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const wasHere = Boolean(person.value);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "");
    const credentials = { email: text("email").trim(), password: text("password") };
    setBusy(true);
    setError(null);
    try {
      if (!isNew) await signIn(credentials);
      else {
        const display_name = text("display_name").trim();
        await register({ ...credentials, display_name, invitation: text("invitation").trim() });
      }
    } catch (thrown) {
      setError(apiErrorOf(thrown));
    } finally {
      setBusy(false);
    }
  };
  const title = isNew ? "Make an account" : wasHere ? "Sign in again" : "Sign in";
  return (
    <Dialog title={title}>
      <h1>{title}</h1>
      {wasHere && (
        <p class="secondary">
          The session is over. Nothing is lost: what you did is sent once you are back.
        </p>
      )}
      <form onSubmit={submit}>
        {isNew && <Field label="Your name" name="display_name" autocomplete="name" required />}
        <Field
          label="Email"
          name="email"
          type="email"
          autocomplete="username"
          required
          defaultValue={person.value?.email ?? ""}
        />
        <Field
          label="Password"
          name="password"
          type="password"
          autocomplete={isNew ? "new-password" : "current-password"}
          required
          {...(isNew
            ? { minLength: PASSWORD_MIN, hint: `${PASSWORD_MIN} characters or more` }
            : {})}
        />
        {isNew && (
          <Field
            label="Invitation code"
            name="invitation"
            autocomplete="off"
            hint="Where an administrator gave you one"
          />
        )}
        {error && <ErrorNote error={error} />}
        <div class="row">
          <Button type="submit" kind="primary" disabled={isBusy}>
            {isNew ? "Make the account" : "Sign in"}
          </Button>
          {!wasHere && (
            <Button kind="quiet" onClick={() => setNew(!isNew)}>
              {isNew ? "I have an account" : "Make an account"}
            </Button>
          )}
        </div>
      </form>
    </Dialog>
  );
}
