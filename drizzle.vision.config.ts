import { defineConfig } from "drizzle-kit";

// `npx drizzle-kit generate --config drizzle.vision.config.ts` writes the next migration from the
// schema; applied ones never change.
export default defineConfig({
  dialect: "postgresql",
  schema: [
    "bucket/objects",
    "vision/schema",
    "vision/labeling",
    "vision/datasets",
    "vision/suggestions",
    "vision/training",
    "vision/endpoints",
    "vision/comparisons",
    "vision/experiments",
    "vision/fleet",
    "vision/targets",
    "vision/rollouts",
    "vision/workflows",
    "vision/audit",
    "vision/incidents",
  ].map((name) => `./db/${name}.ts`),
  out: "./db/vision/migrations",
});
