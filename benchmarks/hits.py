"""A table of page views in the shape of ClickBench's, and that benchmark's 43 queries.

The rows are generated, because the public data is too large to fetch. The numbers of distinct and of empty values,
which decide what a query costs, are like those of the public data.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

_TEXTS = {
    "Title": 3, "URL": 4, "Referer": 3, "FlashMinor2": 50, "UserAgentMinor": 50, "MobilePhoneModel": 200,
    "Params": 100, "SearchPhrase": 8, "PageCharset": 5, "OriginalURL": 40, "HitColor": 5, "BrowserLanguage": 60,
    "BrowserCountry": 90, "SocialNetwork": 5, "SocialAction": 5, "SocialSourcePage": 30, "ParamOrderID": 50,
    "ParamCurrency": 5, "OpenstatServiceName": 10, "OpenstatCampaignID": 20, "OpenstatAdID": 20,
    "OpenstatSourceID": 20, "UTMSource": 20, "UTMMedium": 10, "UTMCampaign": 30, "UTMContent": 20, "UTMTerm": 20,
    "FromTag": 30,
}  # fmt: skip
_TIMES = ("EventTime", "ClientEventTime", "LocalEventTime")
_LARGE = ("WatchID", "UserID", "FUniqID", "ParamPrice", "RefererHash", "URLHash")
_SMALL = (
    "JavaEnable", "GoodEvent", "CounterID", "ClientIP", "RegionID", "CounterClass", "OS", "UserAgent",
    "IsRefresh", "RefererCategoryID", "RefererRegionID", "URLCategoryID", "URLRegionID", "ResolutionWidth",
    "ResolutionHeight", "ResolutionDepth", "FlashMajor", "FlashMinor", "NetMajor", "NetMinor", "UserAgentMajor",
    "CookieEnable", "JavascriptEnable", "IsMobile", "MobilePhone", "IPNetworkID", "TraficSourceID",
    "SearchEngineID", "AdvEngineID", "IsArtifical", "WindowClientWidth", "WindowClientHeight", "ClientTimeZone",
    "SilverlightVersion1", "SilverlightVersion2", "SilverlightVersion3", "SilverlightVersion4", "CodeVersion",
    "IsLink", "IsDownload", "IsNotBounce", "IsOldCounter", "IsEvent", "IsParameter", "DontCountHits",
    "WithHash", "Age", "Sex", "Income", "Interests", "Robotness", "RemoteIP", "WindowName", "OpenerName",
    "HistoryLength", "HTTPError", "SendTiming", "DNSTiming", "ConnectTiming", "ResponseStartTiming",
    "ResponseEndTiming", "FetchTiming", "SocialSourceNetworkID", "ParamCurrencyID", "HasGCLID", "CLID",
)  # fmt: skip
_DISTINCT = {
    "CounterID": 6000, "ClientIP": 400_000, "RegionID": 5000, "OS": 90, "UserAgent": 80, "ResolutionWidth": 2500,
    "AdvEngineID": 18, "SearchEngineID": 60, "MobilePhone": 60, "TraficSourceID": 9, "IPNetworkID": 20_000,
    "RemoteIP": 400_000, "WindowClientWidth": 2500, "WindowClientHeight": 2000,
}  # fmt: skip


def rows(count: int) -> pa.Table:
    """Return rows of 105 columns, in the order of their time."""
    picked = "hash(i * 31 + {}) % {}"
    columns = [f"CAST(DATE '2013-07-01' + CAST(i * 31 // {count} AS INTEGER) AS DATE) AS EventDate"]
    columns += [
        f"CAST(TIMESTAMP '2013-07-01' + to_seconds(i * 2678400 // {count}) AS TIMESTAMP) AS {name}" for name in _TIMES
    ]
    columns += [f"CAST(hash(i // {at + 1}) >> 1 AS BIGINT) AS {name}" for at, name in enumerate(_LARGE)]
    columns += [
        f"CAST({picked.format(at, _DISTINCT.get(name, 3))} * ({picked.format(at + 500, 10)} < 5)::INTEGER AS INTEGER)"
        f" AS {name}"
        for at, name in enumerate(_SMALL)
    ]
    columns += [
        f"CASE WHEN {picked.format(at, 10)} < {4 if every > 4 else 9} THEN '{name.lower()} of page '"
        f" || {picked.format(at + 900, count // every)} || ' at google.example/path' ELSE '' END AS {name}"
        for at, (name, every) in enumerate(_TEXTS.items())
    ]
    columns.append("CAST(i % 40 AS INTEGER) AS RequestNum")
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT {', '.join(columns)} FROM range({count}) r(i) ORDER BY i").to_arrow_table()


_PAGE = "FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-01' AND EventDate <= '2013-07-31'"
QUERIES = (
    "SELECT COUNT(*) FROM hits",
    "SELECT COUNT(*) FROM hits WHERE AdvEngineID <> 0",
    "SELECT SUM(AdvEngineID), COUNT(*), AVG(ResolutionWidth) FROM hits",
    "SELECT AVG(UserID) FROM hits",
    "SELECT COUNT(DISTINCT UserID) FROM hits",
    "SELECT COUNT(DISTINCT SearchPhrase) FROM hits",
    "SELECT MIN(EventDate), MAX(EventDate) FROM hits",
    "SELECT AdvEngineID, COUNT(*) FROM hits WHERE AdvEngineID <> 0 GROUP BY AdvEngineID ORDER BY COUNT(*) DESC",
    "SELECT RegionID, COUNT(DISTINCT UserID) AS u FROM hits GROUP BY RegionID ORDER BY u DESC LIMIT 10",
    (
        "SELECT RegionID, SUM(AdvEngineID), COUNT(*) AS c, AVG(ResolutionWidth), COUNT(DISTINCT UserID) FROM hits "
        "GROUP BY RegionID ORDER BY c DESC LIMIT 10"
    ),
    (
        "SELECT MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' "
        "GROUP BY MobilePhoneModel ORDER BY u DESC LIMIT 10"
    ),
    (
        "SELECT MobilePhone, MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' "
        "GROUP BY MobilePhone, MobilePhoneModel ORDER BY u DESC LIMIT 10"
    ),
    (
        "SELECT SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase "
        "ORDER BY c DESC LIMIT 10"
    ),
    (
        "SELECT SearchPhrase, COUNT(DISTINCT UserID) AS u FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase "
        "ORDER BY u DESC LIMIT 10"
    ),
    (
        "SELECT SearchEngineID, SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' "
        "GROUP BY SearchEngineID, SearchPhrase ORDER BY c DESC LIMIT 10"
    ),
    "SELECT UserID, COUNT(*) FROM hits GROUP BY UserID ORDER BY COUNT(*) DESC LIMIT 10",
    "SELECT UserID, SearchPhrase, COUNT(*) FROM hits GROUP BY UserID, SearchPhrase ORDER BY COUNT(*) DESC LIMIT 10",
    "SELECT UserID, SearchPhrase, COUNT(*) FROM hits GROUP BY UserID, SearchPhrase LIMIT 10",
    (
        "SELECT UserID, extract(minute FROM EventTime) AS m, SearchPhrase, COUNT(*) FROM hits "
        "GROUP BY UserID, m, SearchPhrase ORDER BY COUNT(*) DESC LIMIT 10"
    ),
    "SELECT UserID FROM hits WHERE UserID = 435090932899640449",
    "SELECT COUNT(*) FROM hits WHERE URL LIKE '%google%'",
    (
        "SELECT SearchPhrase, MIN(URL), COUNT(*) AS c FROM hits WHERE URL LIKE '%google%' AND SearchPhrase <> '' "
        "GROUP BY SearchPhrase ORDER BY c DESC LIMIT 10"
    ),
    (
        "SELECT SearchPhrase, MIN(URL), MIN(Title), COUNT(*) AS c, COUNT(DISTINCT UserID) FROM hits "
        "WHERE Title LIKE '%Google%' AND URL NOT LIKE '%.google.%' AND SearchPhrase <> '' GROUP BY SearchPhrase "
        "ORDER BY c DESC LIMIT 10"
    ),
    "SELECT * FROM hits WHERE URL LIKE '%google%' ORDER BY EventTime LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY SearchPhrase LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime, SearchPhrase LIMIT 10",
    (
        "SELECT CounterID, AVG(STRLEN(URL)) AS l, COUNT(*) AS c FROM hits WHERE URL <> '' GROUP BY CounterID "
        "HAVING COUNT(*) > 100 ORDER BY l DESC LIMIT 25"
    ),
    (
        "SELECT REGEXP_REPLACE(Referer, '^https?://(?:www\\.)?([^/]+)/.*$', '\\1') AS k, AVG(STRLEN(Referer)) AS l, "
        "COUNT(*) AS c, MIN(Referer) FROM hits WHERE Referer <> '' GROUP BY k HAVING COUNT(*) > 100 "
        "ORDER BY l DESC LIMIT 25"
    ),
    "SELECT " + ", ".join(f"SUM(ResolutionWidth + {n})" for n in range(90)) + " FROM hits",
    (
        "SELECT SearchEngineID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
        "WHERE SearchPhrase <> '' GROUP BY SearchEngineID, ClientIP ORDER BY c DESC LIMIT 10"
    ),
    (
        "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
        "WHERE SearchPhrase <> '' GROUP BY WatchID, ClientIP ORDER BY c DESC LIMIT 10"
    ),
    (
        "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
        "GROUP BY WatchID, ClientIP ORDER BY c DESC LIMIT 10"
    ),
    "SELECT URL, COUNT(*) AS c FROM hits GROUP BY URL ORDER BY c DESC LIMIT 10",
    "SELECT 1, URL, COUNT(*) AS c FROM hits GROUP BY 1, URL ORDER BY c DESC LIMIT 10",
    (
        "SELECT ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - 3, COUNT(*) AS c FROM hits "
        "GROUP BY ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - 3 ORDER BY c DESC LIMIT 10"
    ),
    (
        f"SELECT URL, COUNT(*) AS PageViews {_PAGE} AND DontCountHits = 0 AND IsRefresh = 0 AND URL <> '' GROUP BY URL "
        "ORDER BY PageViews DESC LIMIT 10"
    ),
    (
        f"SELECT Title, COUNT(*) AS PageViews {_PAGE} AND DontCountHits = 0 AND IsRefresh = 0 AND Title <> '' "
        "GROUP BY Title ORDER BY PageViews DESC LIMIT 10"
    ),
    (
        f"SELECT URL, COUNT(*) AS PageViews {_PAGE} AND IsRefresh = 0 AND IsLink <> 0 AND IsDownload = 0 GROUP BY URL "
        "ORDER BY PageViews DESC LIMIT 10 OFFSET 1000"
    ),
    (
        "SELECT TraficSourceID, SearchEngineID, AdvEngineID, CASE WHEN SearchEngineID = 0 AND AdvEngineID = 0 "
        f"THEN Referer ELSE '' END AS Src, URL AS Dst, COUNT(*) AS PageViews {_PAGE} AND IsRefresh = 0 "
        "GROUP BY TraficSourceID, SearchEngineID, AdvEngineID, Src, Dst ORDER BY PageViews DESC LIMIT 10 OFFSET 1000"
    ),
    (
        f"SELECT URLHash, EventDate, COUNT(*) AS PageViews {_PAGE} AND IsRefresh = 0 AND TraficSourceID IN (-1, 6) "
        "AND RefererHash = 3594120000172545465 GROUP BY URLHash, EventDate ORDER BY PageViews DESC LIMIT 10 OFFSET 100"
    ),
    (
        f"SELECT WindowClientWidth, WindowClientHeight, COUNT(*) AS PageViews {_PAGE} AND IsRefresh = 0 "
        "AND DontCountHits = 0 AND URLHash = 2868770270353813622 GROUP BY WindowClientWidth, WindowClientHeight "
        "ORDER BY PageViews DESC LIMIT 10 OFFSET 10000"
    ),
    (
        "SELECT DATE_TRUNC('minute', EventTime) AS M, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 "
        "AND EventDate >= '2013-07-14' AND EventDate <= '2013-07-15' AND IsRefresh = 0 AND DontCountHits = 0 "
        "GROUP BY DATE_TRUNC('minute', EventTime) ORDER BY DATE_TRUNC('minute', EventTime) LIMIT 10 OFFSET 1000"
    ),
)
