import { defineConfig } from "drizzle-kit";

// `npx drizzle-kit generate --config drizzle.vision.config.ts` writes the next migration from the
// schema; applied ones never change.
export default defineConfig({
  dialect: "postgresql",
  schema: ["./db/vision/schema.ts", "./db/vision/training.ts", "./db/vision/audit.ts"],
  out: "./db/vision/migrations",
});
