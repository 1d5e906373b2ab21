import { defineConfig } from "drizzle-kit";

// As drizzle.config.ts, for the catalog graph: `npx drizzle-kit generate --config` this file.
export default defineConfig({
  dialect: "postgresql",
  schema: "./db/markets/graph.ts",
  out: "./db/markets/graph-migrations",
});
