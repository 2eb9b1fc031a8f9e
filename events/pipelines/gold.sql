-- Pages, visitors and failures of each day.
CREATE OR REFRESH TABLE gold.daily_traffic AS
SELECT ts::DATE AS day, count(*) AS pages, count(DISTINCT visitor) AS visitors, count(*) FILTER (status >= 400) AS failed
FROM silver.pages GROUP BY ALL;

-- How far the visitors of a day came: any page, an article, a second article, a project's page.
CREATE OR REFRESH TABLE gold.funnel KEY (day) AS
SELECT day, count(*) AS visitors, count(*) FILTER (articles >= 1) AS read_one, count(*) FILTER (articles >= 2) AS read_two,
  count(*) FILTER (articles >= 2 AND projects >= 1) AS saw_project
FROM (
  SELECT ts::DATE AS day, visitor, count(DISTINCT path) FILTER (path LIKE '/blog/%' OR path LIKE '/articles/%') AS articles,
    count(*) FILTER (path LIKE '/projects/%') AS projects
  FROM silver.pages WHERE status < 400 GROUP BY ts::DATE, visitor
)
GROUP BY day;

-- Visitors by their first day, and how many came back so many days later.
CREATE OR REFRESH TABLE gold.retention AS
WITH days AS (SELECT DISTINCT visitor, ts::DATE AS day FROM silver.pages),
  first_days AS (SELECT visitor, min(day) AS first_day FROM days GROUP BY visitor)
SELECT first_day, day - first_day AS days_later, count(*) AS visitors
FROM days JOIN first_days USING (visitor) GROUP BY ALL;
