-- What delta-spark runs to make spark_tables.tar.gz (see spark_tables.py). A line that says table and a name starts a table;
-- statements end with a semicolon at the end of a line. {t} is the table, {source} the table clone_source.

-- table: all_types
CREATE TABLE {t} USING delta AS SELECT cast(id AS byte) b, cast(id AS short) s, cast(id AS int) i, id AS l, cast(id / 3 AS float) f, cast(id / 3 AS double) d, cast(id / 7 AS decimal(5,2)) d52, cast(id / 7 AS decimal(15,6)) d156, cast(id / 7 AS decimal(38,18)) d38, id % 2 = 0 AS bo, concat('sé', id) st, cast(concat('b', id) AS binary) bi, date_add(DATE'2020-01-01', cast(id AS int)) da, TIMESTAMP'2020-01-01 10:11:12.123456' + make_interval(0, 0, 0, cast(id AS int)) ts, array(id, NULL, id + 1) al, array(array(cast(id AS int))) aal, map(concat('k', id), id) m, named_struct('x', id, 'y', named_struct('z', cast(id AS string))) st2, array(named_struct('p', id, 'q', 'v')) ast, map('a', named_struct('u', id)) mst, map(cast(id AS int), array(named_struct('w', id))) mast FROM range(0, 5) UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;

-- table: all_types_legacy
SET spark.sql.parquet.writeLegacyFormat = true;
SET spark.sql.parquet.outputTimestampType = INT96;
CREATE TABLE {t} USING delta AS SELECT cast(id AS byte) b, cast(id AS short) s, cast(id AS int) i, id AS l, cast(id / 3 AS float) f, cast(id / 3 AS double) d, cast(id / 7 AS decimal(5,2)) d52, cast(id / 7 AS decimal(15,6)) d156, cast(id / 7 AS decimal(38,18)) d38, id % 2 = 0 AS bo, concat('sé', id) st, cast(concat('b', id) AS binary) bi, date_add(DATE'2020-01-01', cast(id AS int)) da, TIMESTAMP'2020-01-01 10:11:12.123456' + make_interval(0, 0, 0, cast(id AS int)) ts, array(id, NULL, id + 1) al, array(array(cast(id AS int))) aal, map(concat('k', id), id) m, named_struct('x', id, 'y', named_struct('z', cast(id AS string))) st2, array(named_struct('p', id, 'q', 'v')) ast, map('a', named_struct('u', id)) mst, map(cast(id AS int), array(named_struct('w', id))) mast FROM range(0, 5) UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
RESET spark.sql.parquet.writeLegacyFormat;
RESET spark.sql.parquet.outputTimestampType;

-- table: int96_far
CREATE TABLE {t} (id bigint, t timestamp, d date) USING delta;
SET spark.sql.parquet.outputTimestampType = INT96;
INSERT INTO {t} SELECT id, CASE id WHEN 0 THEN TIMESTAMP'0001-01-01 00:00:00' WHEN 1 THEN TIMESTAMP'9999-12-31 23:59:59.999999' WHEN 2 THEN TIMESTAMP'1500-03-04 01:02:03.000001' WHEN 3 THEN TIMESTAMP'1969-12-31 23:59:59.999999' WHEN 4 THEN TIMESTAMP'2262-04-12 00:00:00' END t, IF(id = 0, DATE'0001-01-01', DATE'9999-12-31') d FROM range(6);
RESET spark.sql.parquet.outputTimestampType;
SET spark.sql.parquet.outputTimestampType = TIMESTAMP_MILLIS;
INSERT INTO {t} SELECT id, CASE id WHEN 0 THEN TIMESTAMP'0001-01-01 00:00:00' WHEN 1 THEN TIMESTAMP'9999-12-31 23:59:59.999999' WHEN 2 THEN TIMESTAMP'1500-03-04 01:02:03.000001' WHEN 3 THEN TIMESTAMP'1969-12-31 23:59:59.999999' WHEN 4 THEN TIMESTAMP'2262-04-12 00:00:00' END t, IF(id = 0, DATE'0001-01-01', DATE'9999-12-31') d FROM range(6);
RESET spark.sql.parquet.outputTimestampType;
INSERT INTO {t} SELECT id, CASE id WHEN 0 THEN TIMESTAMP'0001-01-01 00:00:00' WHEN 1 THEN TIMESTAMP'9999-12-31 23:59:59.999999' WHEN 2 THEN TIMESTAMP'1500-03-04 01:02:03.000001' WHEN 3 THEN TIMESTAMP'1969-12-31 23:59:59.999999' WHEN 4 THEN TIMESTAMP'2262-04-12 00:00:00' END t, IF(id = 0, DATE'0001-01-01', DATE'9999-12-31') d FROM range(6);

-- table: v2_json
SET spark.databricks.delta.checkpointV2.topLevelFileFormat = json;
CREATE TABLE {t} (id bigint, part int) USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2');
INSERT INTO {t} SELECT id, cast(id % 3 AS int) FROM range(0, 0 + 10);
INSERT INTO {t} SELECT id, cast(id % 3 AS int) FROM range(10, 10 + 10);
INSERT INTO {t} SELECT id, cast(id % 3 AS int) FROM range(20, 20 + 10);
INSERT INTO {t} SELECT id, cast(id % 3 AS int) FROM range(30, 30 + 10);
DELETE FROM {t} WHERE id = 3;
RESET spark.databricks.delta.checkpointV2.topLevelFileFormat;

-- table: v2_parquet
SET spark.databricks.delta.checkpointV2.topLevelFileFormat = parquet;
SET spark.databricks.delta.checkpoint.partSize = 3;
CREATE TABLE {t} (id bigint, part int) USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2', 'delta.enableDeletionVectors' = 'true');
INSERT INTO {t} SELECT id, cast(id % 3 AS int) FROM range(0, 0 + 10);
INSERT INTO {t} SELECT id, cast(id % 3 AS int) FROM range(10, 10 + 10);
INSERT INTO {t} SELECT id, cast(id % 3 AS int) FROM range(20, 20 + 10);
DELETE FROM {t} WHERE id % 5 = 3;
DELETE FROM {t} WHERE id = 4;
RESET spark.databricks.delta.checkpointV2.topLevelFileFormat;
RESET spark.databricks.delta.checkpoint.partSize;

-- table: multipart
SET spark.databricks.delta.checkpoint.partSize = 3;
CREATE TABLE {t} (id bigint) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '3');
INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id FROM range(0, 0 + 10);
INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id FROM range(10, 10 + 10);
INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id FROM range(20, 20 + 10);
INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id FROM range(30, 30 + 10);
INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id FROM range(40, 40 + 10);
INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id FROM range(50, 50 + 10);
INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id FROM range(60, 60 + 10);
RESET spark.databricks.delta.checkpoint.partSize;

-- table: dv_partitioned
CREATE TABLE {t} (id bigint, v string, part int) USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '4');
INSERT INTO {t} SELECT id, concat('v', id), cast(id % 4 AS int) FROM range(0, 0 + 50);
INSERT INTO {t} SELECT id, concat('v', id), cast(id % 4 AS int) FROM range(50, 50 + 50);
INSERT INTO {t} SELECT id, concat('v', id), cast(id % 4 AS int) FROM range(100, 100 + 50);
DELETE FROM {t} WHERE id % (7 + 0) = 0;
DELETE FROM {t} WHERE id % (7 + 1) = 1;
DELETE FROM {t} WHERE id % (7 + 2) = 2;
DELETE FROM {t} WHERE id % (7 + 3) = 3;
UPDATE {t} SET v = 'upd' WHERE id % 11 = 5;
MERGE INTO {t} t USING (SELECT id, 'm' v, cast(id % 4 AS int) part FROM range(140, 160)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;

-- table: dv_big
CREATE TABLE {t} (id bigint) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
SET parquet.block.size = 65536;
INSERT INTO {t} SELECT id % 1000 FROM range(0, 300000, 1, 1);
RESET parquet.block.size;
DELETE FROM {t} WHERE id % 3 = 1 OR id BETWEEN 400 AND 600;

-- table: dv_map_id
CREATE TABLE {t} (id bigint, s struct<a: int, b: string>, part string) USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'id');
INSERT INTO {t} SELECT id, named_struct('a', cast(id AS int), 'b', 'x'), concat('p %/', id % 3) FROM range(30);
DELETE FROM {t} WHERE id % 4 = 1;
ALTER TABLE {t} RENAME COLUMN part TO pp;

-- table: map_name
CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5') AS SELECT cast(id AS byte) b, cast(id AS short) s, cast(id AS int) i, id AS l, cast(id / 3 AS float) f, cast(id / 3 AS double) d, cast(id / 7 AS decimal(5,2)) d52, cast(id / 7 AS decimal(15,6)) d156, cast(id / 7 AS decimal(38,18)) d38, id % 2 = 0 AS bo, concat('sé', id) st, cast(concat('b', id) AS binary) bi, date_add(DATE'2020-01-01', cast(id AS int)) da, TIMESTAMP'2020-01-01 10:11:12.123456' + make_interval(0, 0, 0, cast(id AS int)) ts, array(id, NULL, id + 1) al, array(array(cast(id AS int))) aal, map(concat('k', id), id) m, named_struct('x', id, 'y', named_struct('z', cast(id AS string))) st2, array(named_struct('p', id, 'q', 'v')) ast, map('a', named_struct('u', id)) mst, map(cast(id AS int), array(named_struct('w', id))) mast FROM range(0, 5) UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
ALTER TABLE {t} RENAME COLUMN i TO `int col`;
ALTER TABLE {t} RENAME COLUMN st2.y.z TO `z.z`;
ALTER TABLE {t} RENAME COLUMN ast.element.p TO P2;
ALTER TABLE {t} RENAME COLUMN mst.value.u TO `u'"x`;
ALTER TABLE {t} DROP COLUMN l;
ALTER TABLE {t} ADD COLUMN l string;
ALTER TABLE {t} ADD COLUMN st2.neu int;
ALTER TABLE {t} ADD COLUMN ast.element.nn double;
INSERT INTO {t} SELECT * FROM {t} WHERE b < 2;

-- table: map_id
CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5') AS SELECT cast(id AS byte) b, cast(id AS short) s, cast(id AS int) i, id AS l, cast(id / 3 AS float) f, cast(id / 3 AS double) d, cast(id / 7 AS decimal(5,2)) d52, cast(id / 7 AS decimal(15,6)) d156, cast(id / 7 AS decimal(38,18)) d38, id % 2 = 0 AS bo, concat('sé', id) st, cast(concat('b', id) AS binary) bi, date_add(DATE'2020-01-01', cast(id AS int)) da, TIMESTAMP'2020-01-01 10:11:12.123456' + make_interval(0, 0, 0, cast(id AS int)) ts, array(id, NULL, id + 1) al, array(array(cast(id AS int))) aal, map(concat('k', id), id) m, named_struct('x', id, 'y', named_struct('z', cast(id AS string))) st2, array(named_struct('p', id, 'q', 'v')) ast, map('a', named_struct('u', id)) mst, map(cast(id AS int), array(named_struct('w', id))) mast FROM range(0, 5) UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
ALTER TABLE {t} RENAME COLUMN i TO `int col`;
ALTER TABLE {t} RENAME COLUMN st2.y.z TO zz;
ALTER TABLE {t} DROP COLUMN s;
ALTER TABLE {t} ADD COLUMN s int;
INSERT INTO {t} SELECT * FROM {t} WHERE b < 2;

-- table: map_upgraded
CREATE TABLE {t} USING delta PARTITIONED BY (part) AS SELECT id, named_struct('a', id, 'b', 'x') st, id % 2 part FROM range(10);
ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5');
ALTER TABLE {t} RENAME COLUMN part TO `P a,rt`;
ALTER TABLE {t} RENAME COLUMN id TO `part`;
ALTER TABLE {t} DROP COLUMN st.b;
ALTER TABLE {t} ADD COLUMN st.b int;
INSERT INTO {t} VALUES (100, named_struct('a', 5L, 'b', 7), 3);

-- table: reserved_names
CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name') AS SELECT id file_row_number, 'x' alluvia_filename, id + 1 filename, 'q' `a b`, 1 `c.d`, 2 `e"f`, 3 `g'h`, 4 `{i}` FROM range(10);
DELETE FROM {t} WHERE file_row_number = 3;

-- table: reserved_plain
CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id file_row_number, id v FROM range(10);
DELETE FROM {t} WHERE file_row_number = 3;

-- table: widening
CREATE TABLE {t} (k int, by byte, sh short, i int, f float, bd byte, de decimal(5,2), idec int, ldec bigint, st struct<x: short, arr: array<byte>>, m map<short, int>) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true');
INSERT INTO {t} SELECT 1, cast(1 AS byte), cast(2 AS short), 3, cast(1.1 AS float), cast(4 AS byte), 5.25, 6, 7L, named_struct('x', cast(8 AS short), 'arr', array(cast(9 AS byte))), map(cast(10 AS short), 11);
ALTER TABLE {t} ALTER COLUMN by TYPE int;
ALTER TABLE {t} ALTER COLUMN sh TYPE bigint;
ALTER TABLE {t} ALTER COLUMN i TYPE bigint;
ALTER TABLE {t} ALTER COLUMN f TYPE double;
ALTER TABLE {t} ALTER COLUMN bd TYPE double;
ALTER TABLE {t} ALTER COLUMN de TYPE decimal(10,4);
ALTER TABLE {t} ALTER COLUMN idec TYPE decimal(12,2);
ALTER TABLE {t} ALTER COLUMN ldec TYPE decimal(22,2);
ALTER TABLE {t} ALTER COLUMN st.x TYPE int;
ALTER TABLE {t} ALTER COLUMN st.arr.element TYPE bigint;
ALTER TABLE {t} ALTER COLUMN m.key TYPE bigint;
ALTER TABLE {t} ALTER COLUMN m.value TYPE double;
INSERT INTO {t} SELECT 2, 70000, 5000000000L, 5000000000L, 1.1d, 1e300, 55555.1234, 1234567890.12, 12345678901234567890.12, named_struct('x', 100000, 'arr', array(5000000000L)), map(5000000000L, 1.5d);
INSERT INTO {t} (k) VALUES (3);

-- table: widening_part
CREATE TABLE {t} (v int, p int) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.enableTypeWidening' = 'true');
INSERT INTO {t} VALUES (1, 1), (2, 2);
ALTER TABLE {t} ALTER COLUMN p TYPE bigint;
INSERT INTO {t} VALUES (3, 5000000000);

-- table: partition_values
CREATE TABLE {t} (id int, p string) USING delta PARTITIONED BY (p);
INSERT INTO {t} VALUES (99, NULL), (0, 'plain'), (1, 'a b'), (2, 'a/b'), (3, 'a%b'), (4, 'a%25b'), (5, 'a=b'), (6, 'a:b'), (7, 'a#b'), (8, 'a?b'), (9, 'a*b'), (10, 'a[b]'), (11, 'a{b}'), (12, 'a\'b'), (13, 'a"b'), (14, 'a\\b'), (15, 'é中😀'), (16, ' lead'), (17, 'trail '), (18, '.'), (19, '..'), (20, 'a+b'), (21, 'a&b'), (22, 'a,b;c'), (23, 'a\tb'), (24, 'a\nb'), (25, '__HIVE_DEFAULT_PARTITION__'), (26, 'null'), (27, '~'), (28, 'a|b'), (29, '100%'), (30, '');

-- table: partition_types
CREATE TABLE {t} USING delta PARTITIONED BY (pb, ps, pi, pl, pf, pd, pdec, pbo, pda, pts, pn, pbi, pstr) AS SELECT id, cast(id AS byte) pb, cast(id AS short) ps, cast(id AS int) pi, id * 10000000000 pl, cast(id AS float) / 3 pf, cast(id AS double) / 3 pd, cast(id AS decimal(10,3)) pdec, id % 2 = 0 pbo, date_add(DATE'1999-12-30', cast(id AS int)) pda, TIMESTAMP'1999-12-31 23:59:59.123' + make_interval(0, 0, 0, cast(id AS int)) pts, TIMESTAMP_NTZ'1999-12-31 23:59:59.123456' pn, cast(concat('b', id) AS binary) pbi, concat('s ', id) pstr FROM range(3) UNION ALL SELECT 7, NULL, NULL, NULL, NULL, cast('nan' AS float), cast('-infinity' AS double), NULL, NULL, NULL, NULL, NULL, NULL, '';

-- table: stats_struct
CREATE TABLE {t} (id bigint, s string, d date, t timestamp, de decimal(10,2), n struct<x: int>, part string) USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpointInterval' = '2');
INSERT INTO {t} SELECT id, concat('s', id), date_add(DATE'2020-01-01', cast(id AS int)), TIMESTAMP'2020-01-01 00:00:00.123456' + make_interval(0, 0, 0, cast(id AS int)), cast(id AS decimal(10,2)), named_struct('x', cast(id AS int)), cast(id % 2 AS string) FROM range(0, 0 + 10);
INSERT INTO {t} SELECT id, concat('s', id), date_add(DATE'2020-01-01', cast(id AS int)), TIMESTAMP'2020-01-01 00:00:00.123456' + make_interval(0, 0, 0, cast(id AS int)), cast(id AS decimal(10,2)), named_struct('x', cast(id AS int)), cast(id % 2 AS string) FROM range(10, 10 + 10);
INSERT INTO {t} SELECT id, concat('s', id), date_add(DATE'2020-01-01', cast(id AS int)), TIMESTAMP'2020-01-01 00:00:00.123456' + make_interval(0, 0, 0, cast(id AS int)), cast(id AS decimal(10,2)), named_struct('x', cast(id AS int)), cast(id % 2 AS string) FROM range(20, 20 + 10);
INSERT INTO {t} SELECT id, concat('s', id), date_add(DATE'2020-01-01', cast(id AS int)), TIMESTAMP'2020-01-01 00:00:00.123456' + make_interval(0, 0, 0, cast(id AS int)), cast(id AS decimal(10,2)), named_struct('x', cast(id AS int)), cast(id % 2 AS string) FROM range(30, 30 + 10);

-- table: void_col
CREATE TABLE {t} USING delta AS SELECT id, NULL AS v, named_struct('a', id, 'n', NULL) s FROM range(3);

-- table: nested_evolution
CREATE TABLE {t} USING delta AS SELECT id, named_struct('a', id) s, array(named_struct('x', id)) l, map('k', named_struct('m', id)) m FROM range(3);
ALTER TABLE {t} ADD COLUMNS (s.b string FIRST, s.c struct<d: int>, l.element.y string FIRST, m.value.o double, extra string);
INSERT INTO {t} SELECT id, named_struct('b', 'q', 'a', id, 'c', named_struct('d', 1)), array(named_struct('y', 'w', 'x', id)), map('k', named_struct('m', id, 'o', 2.5d)), 'new' FROM range(3, 6);
INSERT INTO {t} (id) SELECT id FROM range(6, 8);

-- table: ntz
CREATE TABLE {t} USING delta PARTITIONED BY (p) AS SELECT id, TIMESTAMP_NTZ'1582-10-04 00:00:00.000001' a, TIMESTAMP_NTZ'2020-01-01 01:02:03.123456' p, array(TIMESTAMP_NTZ'2021-01-01 00:00:00') l FROM range(3);

-- table: clone_source
CREATE TABLE {t} USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id, id % 2 part FROM range(10);
DELETE FROM {t} WHERE id = 3;

-- table: shallow_clone
CREATE TABLE {t} SHALLOW CLONE {source};
INSERT INTO {t} VALUES (100, 1);
DELETE FROM {t} WHERE id = 4;

-- table: variant
CREATE TABLE {t} USING delta AS SELECT id, parse_json('[1]') v FROM range(3);

-- table: writer_features
CREATE TABLE {t} (v bigint NOT NULL, c varchar(10), df int DEFAULT 5) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', 'delta.enableChangeDataFeed' = 'true', 'delta.feature.allowColumnDefaults' = 'supported');
INSERT INTO {t} (v, c) VALUES (1, 'a'), (2, 'b');
ALTER TABLE {t} ADD CONSTRAINT pos CHECK (v > 0);
UPDATE {t} SET c = 'z' WHERE v = 1;
DELETE FROM {t} WHERE v = 2;
INSERT INTO {t} (v, c) VALUES (10, 'a'), (20, 'b');
OPTIMIZE {t};

-- table: clustered
CREATE TABLE {t} (id bigint, v string) USING delta CLUSTER BY (id);
INSERT INTO {t} SELECT id, 'x' FROM range(20);
OPTIMIZE {t};

-- table: empty
CREATE TABLE {t} (id bigint, s struct<a: int>) USING delta;

-- table: empty_file
CREATE TABLE {t} USING delta AS SELECT id FROM range(0);

-- table: floats
CREATE TABLE {t} USING delta AS SELECT cast(x AS double) d, cast(x AS float) f FROM VALUES ('nan'), ('infinity'), ('-infinity'), ('0.0'), ('-0.0'), ('1e-300'), (NULL) t(x);

-- table: codecs
CREATE TABLE {t} (id bigint, c string) USING delta;
SET spark.sql.parquet.compression.codec = gzip;
INSERT INTO {t} SELECT id, 'gzip' FROM range(5);
RESET spark.sql.parquet.compression.codec;
SET spark.sql.parquet.compression.codec = zstd;
INSERT INTO {t} SELECT id, 'zstd' FROM range(5);
RESET spark.sql.parquet.compression.codec;
SET spark.sql.parquet.compression.codec = lz4;
INSERT INTO {t} SELECT id, 'lz4' FROM range(5);
RESET spark.sql.parquet.compression.codec;
SET spark.sql.parquet.compression.codec = uncompressed;
INSERT INTO {t} SELECT id, 'uncompressed' FROM range(5);
RESET spark.sql.parquet.compression.codec;
SET spark.sql.parquet.compression.codec = snappy;
INSERT INTO {t} SELECT id, 'snappy' FROM range(5);
RESET spark.sql.parquet.compression.codec;
SET spark.sql.parquet.compression.codec = lz4_raw;
INSERT INTO {t} SELECT id, 'lz4_raw' FROM range(5);
RESET spark.sql.parquet.compression.codec;

-- table: pages_v2
SET parquet.writer.version = v2;
CREATE TABLE {t} USING delta AS SELECT id, concat('s', id % 10) c, cast(id AS decimal(20,2)) d, cast(id % 7 AS decimal(9,2)) d9, cast(id % 7 AS decimal(18,2)) d18 FROM range(1000);
RESET parquet.writer.version;

-- table: dict_decimals
CREATE TABLE {t} USING delta AS SELECT id, cast(id % 5 AS decimal(20,2)) d, cast(id % 7 AS decimal(9,2)) d9, cast(id % 7 AS decimal(18,2)) d18 FROM range(1000);

-- table: wide
CREATE TABLE {t} USING delta AS SELECT id + 0 c0, id + 1 c1, id + 2 c2, id + 3 c3, id + 4 c4, id + 5 c5, id + 6 c6, id + 7 c7, id + 8 c8, id + 9 c9, id + 10 c10, id + 11 c11, id + 12 c12, id + 13 c13, id + 14 c14, id + 15 c15, id + 16 c16, id + 17 c17, id + 18 c18, id + 19 c19, id + 20 c20, id + 21 c21, id + 22 c22, id + 23 c23, id + 24 c24, id + 25 c25, id + 26 c26, id + 27 c27, id + 28 c28, id + 29 c29, id + 30 c30, id + 31 c31, id + 32 c32, id + 33 c33, id + 34 c34, id + 35 c35, id + 36 c36, id + 37 c37, id + 38 c38, id + 39 c39, id + 40 c40, id + 41 c41, id + 42 c42, id + 43 c43, id + 44 c44, id + 45 c45, id + 46 c46, id + 47 c47, id + 48 c48, id + 49 c49, id + 50 c50, id + 51 c51, id + 52 c52, id + 53 c53, id + 54 c54, id + 55 c55, id + 56 c56, id + 57 c57, id + 58 c58, id + 59 c59, named_struct('a', id) s FROM range(3);

-- table: overwrite
CREATE TABLE {t} (id bigint, part string) USING delta PARTITIONED BY (part);
INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, NULL);
INSERT INTO {t} REPLACE WHERE part = 'a' VALUES (10, 'a'), (11, 'a');
SET spark.sql.sources.partitionOverwriteMode = dynamic;
INSERT OVERWRITE {t} VALUES (20, 'b'), (21, 'c');
RESET spark.sql.sources.partitionOverwriteMode;
INSERT OVERWRITE {t} VALUES (30, 'z');
DELETE FROM {t};
CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (new) AS SELECT DATE'2024-02-29' part, 'x' id, 1 new UNION ALL SELECT NULL, NULL, NULL;
CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1L ID, 'last' PART;
INSERT INTO {t} BY NAME SELECT 'more' part, 2L id;

-- table: upper_case
CREATE TABLE {t} (Id BIGINT, PART STRING, Nested STRUCT<Aa: INT, bB: STRING>) USING delta PARTITIONED BY (PART);
INSERT INTO {t} BY NAME SELECT 1 AS iD, 'x' AS part, named_struct('aa', 1, 'BB', 'y') AS NESTED;
INSERT INTO {t} (part, ID) VALUES ('y', 2);
UPDATE {t} SET nested.AA = 5, ID = 7 WHERE id = 1;
DELETE FROM {t} WHERE Part = 'y';

-- table: checkpoints_bare
CREATE TABLE {t} (id bigint, d decimal(9,2), p date, q timestamp, r decimal(10,3)) USING delta PARTITIONED BY (p, q, r) TBLPROPERTIES ('delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpoint.writeStatsAsStruct' = 'false', 'delta.checkpointInterval' = '1');
INSERT INTO {t} SELECT id, id / 4, date_add(DATE'2024-02-27', cast(id AS int)), TIMESTAMP'2024-02-27 00:00:00.000001' + make_interval(0, 0, 0, cast(id AS int)), id / 8 FROM range(3);
INSERT INTO {t} VALUES (9, NULL, NULL, NULL, NULL);
DELETE FROM {t} WHERE id = 1;

-- table: stats_few
CREATE TABLE {t} (a int, b int, c struct<d: int, e: string>, f string) USING delta TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '2', 'delta.checkpointInterval' = '2');
INSERT INTO {t} VALUES (1, 2, named_struct('d', 3, 'e', 'x'), 'y'), (NULL, NULL, NULL, NULL);
ALTER TABLE {t} SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'f,c.e');
INSERT INTO {t} VALUES (5, 6, named_struct('d', 7, 'e', repeat('z', 60)), repeat('é😀', 40));
INSERT INTO {t} VALUES (8, 9, NULL, '');

-- table: map_renamed_to_another
CREATE TABLE {t} (a int, b string, p int) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.checkpointInterval' = '3', 'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpoint.writeStatsAsJson' = 'false');
INSERT INTO {t} VALUES (1, 'x', 1), (2, 'y', 2);
ALTER TABLE {t} RENAME COLUMN a TO old;
ALTER TABLE {t} ADD COLUMN a string;
INSERT INTO {t} VALUES (3, 'z', 3, 'new'), (4, NULL, NULL, NULL);
ALTER TABLE {t} RENAME COLUMN p TO P2;
ALTER TABLE {t} DROP COLUMN b;
ALTER TABLE {t} ALTER COLUMN a FIRST;

-- table: map_id_partitioned
CREATE TABLE {t} (a int, p timestamp) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'id', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5');
INSERT INTO {t} VALUES (1, TIMESTAMP'2024-02-29 01:02:03.456'), (2, NULL);
ALTER TABLE {t} ADD COLUMNS (`b.c` int, `d e` struct<`f.g`: int>);
INSERT INTO {t} VALUES (3, TIMESTAMP'1969-12-31 23:59:59', 4, named_struct('f.g', 5));

-- table: map_removed
CREATE TABLE {t} (a int, b string) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5');
INSERT INTO {t} VALUES (1, 'x');
ALTER TABLE {t} RENAME COLUMN b TO c;
ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none');
INSERT INTO {t} VALUES (2, 'y');

-- table: legacy_protocols
CREATE TABLE {t} (a int) USING delta TBLPROPERTIES ('delta.minReaderVersion' = '1', 'delta.minWriterVersion' = '2');
INSERT INTO {t} VALUES (1);
ALTER TABLE {t} SET TBLPROPERTIES ('delta.minReaderVersion' = '1', 'delta.minWriterVersion' = '4');
INSERT INTO {t} VALUES (2);
ALTER TABLE {t} SET TBLPROPERTIES ('delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '6');
INSERT INTO {t} VALUES (3);
ALTER TABLE {t} SET TBLPROPERTIES ('delta.minReaderVersion' = '3', 'delta.minWriterVersion' = '7');
INSERT INTO {t} VALUES (4);

-- table: protocol_dropped
CREATE TABLE {t} (a int) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
INSERT INTO {t} VALUES (1), (2), (3);
DELETE FROM {t} WHERE a = 2;
ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false');
REORG TABLE {t} APPLY (PURGE);
INSERT INTO {t} VALUES (4);

-- table: dv_row_groups
SET parquet.block.size = 1024;
SET parquet.page.size = 256;
SET parquet.block.size.row.check.min = 1;
CREATE TABLE {t} (id bigint, s string, n struct<x: bigint>, l array<bigint>) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
INSERT INTO {t} SELECT id, concat('row ', id), named_struct('x', id), array(id, NULL) FROM range(0, 3000, 1, 1);
DELETE FROM {t} WHERE id % 2 = 0;
DELETE FROM {t} WHERE id BETWEEN 900 AND 1500;
DELETE FROM {t} WHERE id > 2000;
RESET parquet.block.size;
RESET parquet.page.size;
RESET parquet.block.size.row.check.min;

-- table: deep
CREATE TABLE {t} (id bigint, a array<array<map<string, struct<x: array<decimal(20,3)>, y: timestamp>>>>, m map<struct<k: int, l: string>, array<map<date, binary>>>, s struct<s: struct<s: struct<s: boolean>>>) USING delta;
INSERT INTO {t} VALUES (1, array(array(map('k', named_struct('x', array(1.5, NULL), 'y', TIMESTAMP'1500-01-01 00:00:00.000001')), NULL), NULL, array()), map(named_struct('k', 1, 'l', NULL), array(map(DATE'0001-01-01', X'00'), NULL)), named_struct('s', named_struct('s', named_struct('s', true))));
INSERT INTO {t} VALUES (2, NULL, NULL, NULL), (3, array(), map(), named_struct('s', NULL)), (4, array(NULL), map(named_struct('k', NULL, 'l', 'x'), NULL), named_struct('s', named_struct('s', NULL)));

-- table: legacy_nested
SET spark.sql.parquet.writeLegacyFormat = true;
CREATE TABLE {t} (id bigint, a array<array<map<string, struct<x: array<decimal(20,3)>, y: timestamp>>>>, m map<struct<k: int, l: string>, array<map<date, binary>>>, o array<struct<element: int>>, e array<struct<array: int>>) USING delta;
INSERT INTO {t} VALUES (1, array(array(map('k', named_struct('x', array(1.5, NULL), 'y', TIMESTAMP'1500-01-01 00:00:00.000001')), NULL), NULL, array()), map(named_struct('k', 1, 'l', NULL), array(map(DATE'0001-01-01', X'00'), NULL)), array(named_struct('element', 1), NULL), array(named_struct('array', 2))), (2, NULL, NULL, NULL, NULL), (3, array(), map(), array(), array()), (4, array(NULL), map(named_struct('k', NULL, 'l', 'x'), NULL), array(NULL), array(NULL));
RESET spark.sql.parquet.writeLegacyFormat;

-- table: legacy_decimals
SET spark.sql.parquet.writeLegacyFormat = true;
CREATE TABLE {t} USING delta AS SELECT cast(id AS decimal(1,0)) a, cast(id / 100 AS decimal(9,9)) b, cast(-id AS decimal(10,2)) c, cast(-id / 100 AS decimal(18,18)) d, cast(-id AS decimal(19,1)) e, cast(id AS decimal(28,10)) f, cast(-id AS decimal(38,0)) g, array(cast(-id AS decimal(7,3))) h FROM range(-3, 4);
RESET spark.sql.parquet.writeLegacyFormat;

-- table: rebased
SET spark.sql.parquet.datetimeRebaseModeInWrite = LEGACY;
SET spark.sql.parquet.int96RebaseModeInWrite = LEGACY;
CREATE TABLE {t} (id int, d date, t timestamp) USING delta;
INSERT INTO {t} VALUES (1, DATE'1582-10-15', TIMESTAMP'1582-10-15 00:00:00'), (2, DATE'1900-01-01', TIMESTAMP'1900-01-01 00:00:00');
RESET spark.sql.parquet.datetimeRebaseModeInWrite;
RESET spark.sql.parquet.int96RebaseModeInWrite;

-- table: ntz_added
CREATE TABLE {t} (id int, t timestamp) USING delta;
INSERT INTO {t} VALUES (1, TIMESTAMP'2024-02-29 01:02:03.456');
ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported');
ALTER TABLE {t} ADD COLUMNS (n timestamp_ntz, s struct<n: timestamp_ntz>, m map<string, timestamp_ntz>);
INSERT INTO {t} VALUES (2, NULL, TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', named_struct('n', TIMESTAMP_NTZ'0001-01-01 00:00:00'), map('k', TIMESTAMP_NTZ'2024-01-01 00:00:00'));

-- table: strings
CREATE TABLE {t} (c varchar(5), v varchar(7), s string COLLATE UTF8_BINARY, b binary) USING delta;
INSERT INTO {t} VALUES ('a', 'b', 'c', X''), ('', '', '', X'00FF'), (NULL, NULL, NULL, NULL), ('abcde', '1234567', repeat('x', 5000), cast(repeat('y', 5000) AS binary)), ('é', '😀', '\0', cast('\0' AS binary));

-- table: partition_only
CREATE TABLE {t} (a int, p string) USING delta PARTITIONED BY (p);
INSERT INTO {t} (p) VALUES ('x'), ('x'), (NULL);
ALTER TABLE {t} ADD COLUMN b struct<c: int>;
INSERT INTO {t} (p, b) VALUES ('y', named_struct('c', NULL)), ('y', NULL);

-- table: partition_extremes
CREATE TABLE {t} (n int, l bigint, d date, t timestamp, z timestamp_ntz, m decimal(38,18), f double) USING delta PARTITIONED BY (l, d, t, z, m, f);
INSERT INTO {t} VALUES (1, -9223372036854775808, DATE'0001-01-01', TIMESTAMP'0001-01-01 00:00:00.000001', TIMESTAMP_NTZ'0001-01-01 00:00:00', -99999999999999999999.999999999999999999, 1e300D), (2, 9223372036854775807, DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', 0.000000000000000001, -0.0D), (3, 0, DATE'1969-12-31', TIMESTAMP'1970-01-01 00:00:00', TIMESTAMP_NTZ'1970-01-01 00:00:00', 0.0000001, 5e-324D);

-- table: row_ids
CREATE TABLE {t} (id bigint, p int) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '2');
INSERT INTO {t} VALUES (1, 1), (2, 1), (3, NULL);
UPDATE {t} SET id = 22 WHERE id = 2;
OPTIMIZE {t};

-- table: feature_mix
CREATE TABLE {t} (id bigint, name string, at timestamp_ntz, w int) USING delta PARTITIONED BY (name) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2', 'delta.enableTypeWidening' = 'true', 'delta.enableInCommitTimestamps' = 'true', 'delta.feature.vacuumProtocolCheck' = 'supported', 'delta.enableChangeDataFeed' = 'true');
INSERT INTO {t} VALUES (1, 'a/b', TIMESTAMP_NTZ'2024-02-29 01:02:03', 5), (2, 'a/b', NULL, NULL), (3, NULL, NULL, 6);
ALTER TABLE {t} RENAME COLUMN name TO `the name`;
ALTER TABLE {t} ALTER COLUMN w TYPE bigint;
DELETE FROM {t} WHERE id = 1;
UPDATE {t} SET w = 7000000000 WHERE id = 2;
INSERT INTO {t} VALUES (4, '', NULL, 8);
