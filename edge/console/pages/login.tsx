// The pages of those who have no session, or whose request could not be done.

import type { FC } from "hono/jsx";

/** Where the operator token is typed in. */
export const Login: FC<{ next: string; problem?: string | undefined }> = ({ next, problem }) => (
  <section class="login card" aria-labelledby="login-title">
    <h1 id="login-title">Log in</h1>
    {problem && (
      <p class="notice problem" role="alert" id="problem">
        <span aria-hidden="true">!</span> {problem}
      </p>
    )}
    <form method="post" action="/login">
      <input type="hidden" name="next" value={next} />
      <label>
        Operator token
        <input
          type="password"
          name="token"
          required
          autofocus
          autocomplete="current-password"
          aria-describedby={problem ? "problem" : "where"}
        />
      </label>
      <button type="submit">Log in</button>
    </form>
    <p class="soft" id="where">
      A local stack keeps it in <code>.vantage/operator-token</code>; elsewhere it is the secret{" "}
      <code>OPERATOR_TOKEN</code> of the console.
    </p>
  </section>
);

/** What went wrong, and where to go from there. */
export const Trouble: FC<{ title: string; detail: string; requestId: string }> = ({
  title,
  detail,
  requestId,
}) => (
  <section class="card trouble-page">
    <h1>{title}</h1>
    <p>{detail}</p>
    <p>
      <a href="/overview">To the overview</a>
    </p>
    <p class="soft">
      Request <code class="id">{requestId}</code>
    </p>
  </section>
);
