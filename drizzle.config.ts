import { defineConfig } from "drizzle-kit";

// `npx drizzle-kit generate` writes the next migration from the schema; applied ones never change.
export default defineConfig({
  dialect: "postgresql",
  schema: ["./db/markets/schema.ts", "./db/objects.ts"],
  out: "./db/markets/migrations",
});
