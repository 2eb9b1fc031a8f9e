-- Pages that people read: no images, styles, feeds or robots.
CREATE OR REFRESH TABLE silver.pages (
  CONSTRAINT has_status EXPECT (status BETWEEN 100 AND 599) ON VIOLATION QUARANTINE,
  CONSTRAINT has_visitor EXPECT (visitor <> '') ON VIOLATION QUARANTINE,
  CONSTRAINT answered EXPECT (status < 500)
)
PARTITIONED BY (day(ts))
AS SELECT event_id, ts, ip AS visitor, split_part(path, '?', 1) AS path, status, bytes, nullif(referrer, '-') AS referrer
FROM bronze.requests
WHERE method = 'GET'
  AND NOT regexp_matches(path, '\.(png|jpe?g|gif|svg|ico|css|js|woff|ttf|eot|pdf|zip|gz|rb|txt|xml|rss|atom)(\?|$)|/feed|flav=|/robots')
  AND NOT regexp_matches(lower(coalesce(agent, '')), 'bot|crawl|spider|slurp|feed|reader|monitor|curl|wget');

-- A visitor's pages with less than 30 minutes between them are one session. A page that arrives late can join two.
CREATE OR REFRESH TABLE silver.sessions KEY (visitor, session)
AS WITH gaps AS (
  SELECT visitor, ts, event_id, path,
    coalesce(ts - lag(ts) OVER (PARTITION BY visitor ORDER BY ts, event_id) > INTERVAL 30 MINUTES, true) AS starts
  FROM silver.pages
), numbered AS (
  SELECT visitor, ts, event_id, path,
    count(*) FILTER (starts) OVER (PARTITION BY visitor ORDER BY ts, event_id) AS session
  FROM gaps
)
SELECT visitor, session, min(ts) AS begins, max(ts) AS ends, count(*) AS pages, first(path ORDER BY ts, event_id, path) AS entry
FROM numbered GROUP BY visitor, session;

-- Senders of webhooks, as the newest webhook shows them.
CREATE OR REFRESH TABLE silver.users KEY (id) SEQUENCE BY seen
AS SELECT (properties->>'$.payload.sender.id')::BIGINT AS id,
  (properties->>'$.payload.repository.updated_at')::TIMESTAMPTZ AS seen,
  properties->>'$.payload.sender.login' AS login, properties->>'$.payload.sender.type' AS type
FROM bronze.webhooks
WHERE (properties->>'$.payload.sender.id') IS NOT NULL AND (properties->>'$.payload.repository.updated_at') IS NOT NULL;

-- Every state of a repository that webhooks tell of, from its first to its last.
CREATE OR REFRESH TABLE silver.repositories KEY (id) SEQUENCE BY updated_at SCD TYPE 2
AS SELECT (properties->>'$.payload.repository.id')::BIGINT AS id,
  (properties->>'$.payload.repository.updated_at')::TIMESTAMPTZ AS updated_at,
  properties->>'$.payload.repository.full_name' AS name,
  (properties->>'$.payload.repository.open_issues')::BIGINT AS open_issues
FROM bronze.webhooks
WHERE (properties->>'$.payload.repository.id') IS NOT NULL AND (properties->>'$.payload.repository.updated_at') IS NOT NULL;
