-- One line of the worker's diary (W-71). Most of them have no settings: an empty list of queues, which older readers
-- understand too, and NULL.
INSERT INTO horsies_worker_states (worker_id, snapshot_at, hostname, pid, processes, queues, tasks_running, tasks_claimed,
    memory_usage_mb, cpu_percent, memory_percent, children_memory_mb, max_claim_batch, max_claim_per_worker, cluster_wide_cap,
    queue_priorities, queue_max_concurrency, recovery_config, worker_started_at)
VALUES (%(worker_id)s, now(), %(hostname)s, %(pid)s, %(processes)s, %(queues)s, %(tasks_running)s, %(tasks_claimed)s,
    %(memory_usage_mb)s, %(cpu_percent)s, %(memory_percent)s, %(children_memory_mb)s, %(max_claim_batch)s,
    %(max_claim_per_worker)s, %(cluster_wide_cap)s, %(queue_priorities)s, %(queue_max_concurrency)s, %(recovery_config)s,
    now() - make_interval(secs => %(age)s))
