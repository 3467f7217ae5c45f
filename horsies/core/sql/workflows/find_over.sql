-- Running workflows of which every node has ended (R-36): whoever ended the last one should have ended them as well. At most
-- `most`, by id, from the one after `after` on. The index holds nothing else, and so mostly nothing.
SELECT id FROM horsies_workflows WHERE is_over AND id > %(after)s::text ORDER BY id LIMIT %(most)s
