{% materialization snapshot, adapter='alluvia' -%}
  {%- set strategy_name = config.get('strategy') -%}
  {%- set unique_key = config.get('unique_key') -%}
  {%- set exists, target = get_or_create_relation(
    database=model.database, schema=model.schema, identifier=model.get('alias', model.get('name')), type='table'
  ) -%}
  {%- if not target.is_table -%}
    {% do exceptions.relation_wrong_type(target, 'table') %}
  {%- endif -%}

  {% do alluvia__begin(target) %}

  {% set strategy_macro = strategy_dispatch(strategy_name) %}
  {% set strategy = strategy_macro(model, 'snapshotted_data', 'source_data', model['config'], exists) %}

  {% if not exists %}
    {% set rows_sql = build_snapshot_table(strategy, model['compiled_code']) %}
    {% set build_sql = create_table_as(False, target, rows_sql) %}
  {% else %}
    {% set names = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() %}
    {{ adapter.assert_valid_snapshot_target_given_strategy(target, names, strategy) }}
    {% set rows_sql = snapshot_staging_table(strategy, sql, target) %}
    {% set build_sql = alluvia__snapshot_changes(target, rows_sql, unique_key) %}
  {% endif %}

  {{ check_time_data_types(rows_sql) }}
  {% call statement('main') -%}
    {{ build_sql }}
  {%- endcall %}

  {{ return(alluvia__end(target)) }}
{%- endmaterialization %}

{# New columns of the model, and the MERGE of what has changed, as one text. #}
{% macro alluvia__snapshot_changes(target, rows_sql, unique_key) -%}
  {%- set own = ['dbt_change_type', 'dbt_unique_key'] -%}
  {%- if unique_key | is_list -%}
    {%- for key in unique_key -%}
      {%- do own.append('dbt_unique_key_' ~ loop.index) -%}
    {%- endfor -%}
  {%- endif -%}
  {%- set columns = get_column_schema_from_query(rows_sql) | rejectattr('name', 'in', own) | list -%}
  {%- set added = diff_columns(columns, adapter.get_columns_in_relation(target)) -%}
  {%- set statements = alluvia__column_changes(target, added, []) -%}
  {%- do statements.append(snapshot_merge_sql(
    target=target, source='(\n' ~ rows_sql ~ '\n)', insert_cols=columns | map(attribute='quoted') | list
  )) -%}
  {{ return(statements | join(';\n')) }}
{%- endmacro %}

{# dbt's own times get the type that they have in the table: `now()` has a time zone, `updated_at` perhaps none. #}
{% macro alluvia__snapshot_merge_sql(target, source, insert_cols) -%}
  {%- set names = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {%- set until = 'DBT_INTERNAL_DEST.' ~ names.dbt_valid_to -%}
  {%- set current = config.get('dbt_valid_to_current') -%}
  {%- set types = {} -%}
  {%- for column in adapter.get_columns_in_relation(target) -%}
    {%- do types.update({column.name: column.dtype}) -%}
  {%- endfor -%}
  {%- set values = {} -%}
  {%- for name in [names.dbt_valid_from, names.dbt_valid_to, names.dbt_updated_at] -%}
    {%- do values.update({adapter.quote(name): 'cast(DBT_INTERNAL_SOURCE.' ~ name ~ ' as ' ~ types[name] ~ ')'}) -%}
  {%- endfor -%}
  merge into {{ target.render() }} as DBT_INTERNAL_DEST
  using {{ source }} as DBT_INTERNAL_SOURCE
  on DBT_INTERNAL_SOURCE.{{ names.dbt_scd_id }} = DBT_INTERNAL_DEST.{{ names.dbt_scd_id }}
  when matched
    and ({{ until }} is null{% if current %} or {{ until }} = {{ current }}{% endif %})
    and DBT_INTERNAL_SOURCE.dbt_change_type in ('update', 'delete')
    then update set {{ names.dbt_valid_to }} = {{ values[adapter.quote(names.dbt_valid_to)] }}
  when not matched and DBT_INTERNAL_SOURCE.dbt_change_type = 'insert'
    then insert ({{ insert_cols | join(', ') }})
    values ({% for name in insert_cols %}{{ values.get(name, 'DBT_INTERNAL_SOURCE.' ~ name) }}{{ ', ' if not loop.last }}{% endfor %})
{%- endmacro %}
