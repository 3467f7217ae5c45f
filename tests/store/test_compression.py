"""Large values are compressed with the quick method where the server has it (D-12)."""

from tests.store.test_arrows import Db

COLUMNS = {
    ("horsies_tasks", "args"),
    ("horsies_tasks", "kwargs"),
    ("horsies_tasks", "result"),
    ("horsies_task_logs", "lines"),
    ("horsies_workflow_tasks", "task_kwargs"),
    ("horsies_workflow_tasks", "result"),
    ("horsies_workflows", "result"),
}
HAS_LZ4 = "SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)"
# As JSON: the column is newer than the oldest server.
WITH_LZ4 = """
    SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relname LIKE 'horsies%' AND c.relkind = 'r' AND to_jsonb(a) ->> 'attcompression' = 'l'
"""


async def test_d12_arguments_and_results_are_compressed_with_lz4_where_the_server_has_it(db: Db) -> None:
    has_lz4 = await (await db.execute(HAS_LZ4)).fetchone() is not None
    found = set(await (await db.execute(WITH_LZ4)).fetchall())
    assert found == (COLUMNS if has_lz4 else set())
