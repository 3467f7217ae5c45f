-- Those of these sessions of ours in which a statement is still under way, although their connections are lost (W-21).
SELECT pid FROM pg_stat_activity WHERE pid = ANY(%(pids)s::int[]) AND usename = current_user AND state = 'active'
