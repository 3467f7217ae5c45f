-- Whether there may be a heartbeat to delete, so that a tick without any takes no lock (R-81).
SELECT COALESCE((SELECT sent_at FROM horsies_heartbeats ORDER BY sent_at LIMIT 1) < now() - %(age)s::interval, FALSE)
