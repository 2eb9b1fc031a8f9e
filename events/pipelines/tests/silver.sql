TEST silver.pages 'images and robots are no pages, and a query string is no other page'
GIVEN bronze.requests AS (
  SELECT * FROM (VALUES ('GET', '/a?x=1', 200, 'Mozilla'), ('GET', '/a.png', 200, 'Mozilla'),
    ('GET', '/a', 200, 'Googlebot'), ('HEAD', '/a', 200, 'Mozilla'), ('GET', '/b', 0, 'Mozilla')
  ) AS t(method, path, status, agent), (SELECT '10.0.0.1' AS ip)
)
EXPECT (SELECT '/a' AS path, 200 AS status)
EXPECT QUARANTINE (SELECT '/b' AS path, ['has_status'] AS _failed);

TEST silver.sessions 'half an hour without a page ends a session'
GIVEN silver.pages AS (
  SELECT 'ada' AS visitor, ts, strftime(ts, '%H%M') AS event_id, '/' AS path
  FROM (SELECT unnest([TIMESTAMPTZ '2026-01-01 09:00:00Z', '2026-01-01 09:30:00Z', '2026-01-01 10:00:01Z']) AS ts)
)
EXPECT (SELECT * FROM (VALUES (1, 2), (2, 1)) AS t(session, pages));

TEST silver.repositories 'a change that is late goes where it belongs'
GIVEN bronze.webhooks AS (
  SELECT unnest([
    '{"payload": {"repository": {"id": 1, "updated_at": "2026-01-03T00:00:00Z", "full_name": "ada/new", "open_issues": 0}}}',
    '{"payload": {"repository": {"id": 1, "updated_at": "2026-01-01T00:00:00Z", "full_name": "ada/old", "open_issues": 2}}}'
  ]) AS properties
)
EXPECT (SELECT * FROM (VALUES ('ada/old', false), ('ada/new', true)) AS t(name, is_current));
