import { defineConfig } from "drizzle-kit";

// `npx drizzle-kit generate` writes the next migration from the schema; applied ones never change.
export default defineConfig({
  dialect: "postgresql",
  schema: ["./db/markets/schema.ts", "./db/bucket/objects.ts"],
  out: "./db/markets/migrations",
});
