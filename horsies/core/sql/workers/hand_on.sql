-- Wakes another idle worker for each of these tasks, which this one leaves (O-31).
SELECT horsies_wake_workers(w.queue, 1, %(worker_id)s, w.id) FROM unnest(%(queues)s::text[], %(ids)s::text[]) AS w(queue, id)
