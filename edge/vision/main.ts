// The vision Worker. It serves its liveness only, until its first rooms move in.

import { sql } from "drizzle-orm";
import { addLiveness, createService } from "../http/app.ts";
import { type Database, openDatabase } from "../http/database.ts";
import { parseConfig } from "./config.ts";

const { app } = createService<{ database: Database }>({
  name: "vision",
  title: "Vantage Vision",
  version: "0.1.0",
  description: "Video labeling, training, serving and administration.",
  loggedQuery: [],
  open: (environment) => ({ database: openDatabase(parseConfig(environment).DATABASE_URL) }),
});

addLiveness(app, ({ database }) => database.execute(sql`SELECT 1`));

export default { fetch: app.fetch };
