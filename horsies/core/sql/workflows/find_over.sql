-- Finds running workflows of which every node has ended (R-36): the process that ended the last node should have ended the
-- workflow too. Returns at most `most`, by id, after the id `after`. The index holds only such workflows, so it is nearly empty.
SELECT id FROM horsies_workflows WHERE is_over AND id > %(after)s::text ORDER BY id LIMIT %(most)s
