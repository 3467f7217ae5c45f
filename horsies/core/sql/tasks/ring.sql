-- Rings the bell for tasks whose retry has fallen due (T-80).
SELECT horsies_ring(d.queue, d.id) FROM unnest(%(queues)s::text[], %(ids)s::text[]) AS d(queue, id)
