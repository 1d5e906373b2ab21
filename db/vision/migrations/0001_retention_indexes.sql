CREATE INDEX "idempotent_answer_created" ON "idempotent_answer" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "refresh_token_expires" ON "refresh_token" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "task_settled" ON "task" USING btree ("settled_at") WHERE settled_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "device_alert_recovered" ON "device_alert" USING btree ("recovered_at") WHERE recovered_at IS NOT NULL;