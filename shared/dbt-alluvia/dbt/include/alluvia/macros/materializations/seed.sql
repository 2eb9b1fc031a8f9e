{% materialization seed, adapter='alluvia' -%}
  {%- set existing = adapter.get_relation(database=database, schema=schema, identifier=model['alias']) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- if existing is not none and existing.is_view -%}
    {{ exceptions.raise_compiler_error("Cannot seed to '{}', it is a view".format(existing.render())) }}
  {%- endif -%}
  {%- set replaces = existing is none or should_full_refresh() -%}
  {%- set agate_table = load_agate_table() -%}
  {%- do store_result('agate_table', response='OK', agate_table=agate_table) -%}

  {% do alluvia__begin(target) %}

  {% set text = alluvia__seed_sql(target, agate_table, replaces) %}
  {% do adapter.run_with_values(text, {'rows': adapter.rows_as_texts(agate_table)}) %}
  {% set rows = agate_table.rows | length %}
  {% call noop_statement('main', ('CREATE ' if replaces else 'INSERT ') ~ rows, 'CREATE' if replaces else 'INSERT', rows) %}
    {{ text }}
  {% endcall %}
  {% do adapter.cache_added(target) %}

  {{ return(alluvia__end(target)) }}
{%- endmaterialization %}

{# A seed is one text, with its rows as one parameter: texts, which the SELECT casts. #}
{% macro alluvia__seed_sql(target, agate_table, replaces) -%}
  {%- set types = model['config'].get('column_types', {}) -%}
  {%- set quoting = model['config'].get('quote_columns', None) -%}
  {%- set names = [] -%}
  {%- set values = [] -%}
  {%- for column in agate_table.column_names -%}
    {%- set type = types.get(column, adapter.convert_type(agate_table, loop.index0)) -%}
    {%- do names.append(adapter.quote_seed_column(column | string, quoting)) -%}
    {%- do values.append('cast(seed_row.c' ~ loop.index0 ~ ' as ' ~ type ~ ')') -%}
  {%- endfor -%}
  {%- set from = 'from (select unnest($rows) as seed_row)' -%}
  {%- if not agate_table.rows | length -%}
    {#-- A list without rows has no fields. --#}
    {%- set values = [] -%}
    {%- for column in agate_table.column_names -%}
      {%- do values.append('cast(null as ' ~ types.get(column, 'VARCHAR') ~ ')') -%}
    {%- endfor -%}
    {%- set from = 'from (select unnest($rows))' -%}
  {%- endif -%}
  {%- if replaces -%}
    create or replace table {{ target.render() }}{{ alluvia__layout() }} as
    select {% for name in names %}{{ values[loop.index0] }} as {{ name }}{{ ', ' if not loop.last }}{% endfor %}
    {{ from }}
  {%- else -%}
    truncate table {{ target.render() }};
    insert into {{ target.render() }} ({{ names | join(', ') }})
    select {{ values | join(', ') }} {{ from }}
  {%- endif -%}
{%- endmacro %}
