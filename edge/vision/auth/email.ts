// Email addresses of accounts, as requests give them and as they are stored.

import { z } from "@hono/zod-openapi";

/** The spelling under which an email is stored and looked up. */
export const normalEmail = (email: string): string => email.trim().toLowerCase();

/** An email as a request gives it, in its normal spelling. */
export const Email = z
  .string()
  .max(254)
  .transform(normalEmail)
  .pipe(z.email("must be an email address"))
  .meta({ format: "email", example: "ada@example.com" });
