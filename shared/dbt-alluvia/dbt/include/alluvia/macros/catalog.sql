{# What `dbt docs` shows, of the tables and views that a condition names. #}
{% macro alluvia__catalog(condition) -%}
  {% set sql %}
    select
      tables.table_catalog as table_database,
      tables.table_schema as table_schema,
      tables.table_name as table_name,
      tables.table_type as table_type,
      tables."TABLE_COMMENT" as table_comment,
      columns.column_name as column_name,
      columns.ordinal_position as column_index,
      columns.data_type as column_type,
      columns."COLUMN_COMMENT" as column_comment,
      cast(null as varchar) as table_owner
    from information_schema.tables as tables
    join information_schema.columns as columns using (table_catalog, table_schema, table_name)
    where {{ condition }}
    order by table_schema, table_name, column_index
  {% endset %}
  {{ return(run_query(sql)) }}
{%- endmacro %}

{% macro alluvia__named(relation) -%}
  (table_schema = {{ alluvia__text(relation.schema | lower) }}
  {%- if relation.identifier %} and table_name = {{ alluvia__text(relation.identifier | lower) }}{% endif %})
{%- endmacro %}

{% macro alluvia__get_catalog(information_schema, schemas) -%}
  {%- set names = [] -%}
  {%- for schema in schemas -%}
    {%- do names.append(alluvia__text(schema | lower)) -%}
  {%- endfor -%}
  {{ return(alluvia__catalog('table_schema in (' ~ names | join(', ') ~ ')')) }}
{%- endmacro %}

{% macro alluvia__get_catalog_relations(information_schema, relations) -%}
  {%- set named = [] -%}
  {%- for relation in relations -%}
    {%- do named.append(alluvia__named(relation)) -%}
  {%- endfor -%}
  {{ return(alluvia__catalog(named | join(' or '))) }}
{%- endmacro %}

{% macro alluvia__get_catalog_for_single_relation(relation) -%}
  {{ return(alluvia__catalog(alluvia__named(relation))) }}
{%- endmacro %}

{# When rows came last, by the newest 100 commits. Where none of these added any, the oldest is at least as young. #}
{% macro alluvia__get_relation_last_modified(information_schema, relations) -%}
  {%- set adds_none = ['OPTIMIZE', 'UNDO OPTIMIZE', 'REORG', 'EXPIRE', 'ERASE', 'DELETE', 'RESTORE', 'UNDROP TABLE'] -%}
  {%- call statement('last_modified', fetch_result=True) -%}
    {%- for relation in relations %}
      select
        {{ alluvia__text(relation.schema) }} as schema,
        {{ alluvia__text(relation.identifier) }} as identifier,
        coalesce(
          max(timestamp) filter (where files_added > 0 and operation not in ('{{ adds_none | join("', '") }}')),
          case when min(version) > 0 then min(timestamp) end
        ) as last_modified,
        now() as snapshotted_at
      from history({{ alluvia__text(relation.schema | lower ~ '.' ~ relation.identifier | lower) }}, 100)
      {{ 'union all' if not loop.last }}
    {%- endfor -%}
  {%- endcall -%}
  {{ return(load_result('last_modified')) }}
{%- endmacro %}
