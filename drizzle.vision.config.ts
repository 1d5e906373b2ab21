import { defineConfig } from "drizzle-kit";

// `npx drizzle-kit generate --config drizzle.vision.config.ts` writes the next migration from the
// schema; applied ones never change.
export default defineConfig({
  dialect: "postgresql",
  schema: [
    "schema",
    "training",
    "endpoints",
    "comparisons",
    "experiments",
    "fleet",
    "targets",
    "rollouts",
    "workflows",
    "audit",
  ].map((name) => `./db/vision/${name}.ts`),
  out: "./db/vision/migrations",
});
