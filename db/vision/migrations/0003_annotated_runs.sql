DROP INDEX "task_annotated";--> statement-breakpoint
CREATE INDEX "task_annotated" ON "task" USING btree ("workspace_id") WHERE state = 'finished' AND payload ? 'annotated';