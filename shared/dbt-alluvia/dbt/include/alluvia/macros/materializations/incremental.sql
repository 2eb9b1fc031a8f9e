{% materialization incremental, adapter='alluvia' -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- set full_refresh = should_full_refresh() or (existing is not none and existing.is_view) -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set strategy = config.get('incremental_strategy') or 'default' -%}
  {%- set strategy_sql = adapter.get_incremental_strategy_macro(context, strategy) -%}

  {% do alluvia__begin(target) %}

  {% if existing is none or full_refresh %}
    {% do alluvia__make_way(existing, target, sql) %}
    {% set build_sql = get_create_table_as_sql(False, target, sql) %}
  {% else %}
    {% if config.get('contract').enforced %}{{ get_assert_columns_equivalent(sql) }}{% endif %}
    {#-- The rows that a strategy takes are the model itself, in brackets: there is no table in between. --#}
    {% set rows = '(\n' ~ sql ~ '\n)' %}
    {% set build_sql = strategy_sql({
      'target_relation': target,
      'temp_relation': rows,
      'unique_key': config.get('unique_key'),
      'dest_columns': alluvia__changed_columns(on_schema_change, sql, existing),
      'incremental_predicates': config.get('predicates', none) or config.get('incremental_predicates', none),
    }) %}
  {% endif %}

  {% call statement('main') -%}
    {{ build_sql }}
  {%- endcall %}

  {{ return(alluvia__end(target)) }}
{%- endmaterialization %}

{# Have the columns of a table follow those of its model, as `on_schema_change` says. Returns the columns to write. #}
{% macro alluvia__changed_columns(on_schema_change, sql, existing) -%}
  {% set there = adapter.get_columns_in_relation(existing) %}
  {% if on_schema_change == 'ignore' %}
    {{ return(there) }}
  {% endif %}
  {% set wanted = get_column_schema_from_query(sql) %}
  {% set changes = {
    'source_not_in_target': diff_columns(wanted, there),
    'target_not_in_source': diff_columns(there, wanted),
    'new_target_types': diff_column_data_types(wanted, there),
    'source_columns': wanted,
    'target_columns': there,
  } %}
  {% if changes['source_not_in_target'] or changes['target_not_in_source'] or changes['new_target_types'] %}
    {% if on_schema_change == 'fail' %}
      {% do exceptions.raise_compiler_error(
        "The columns of " ~ existing ~ " are not those of its model. Only in the model: "
        ~ changes['source_not_in_target'] | map(attribute='name') | join(', ')
        ~ ". Only in the table: " ~ changes['target_not_in_source'] | map(attribute='name') | join(', ')
        ~ ". Of another type: " ~ changes['new_target_types'] | map(attribute='column_name') | join(', ')
        ~ ". Set on_schema_change to append_new_columns or sync_all_columns, or run with --full-refresh."
      ) %}
    {% endif %}
    {% do sync_column_schemas(on_schema_change, existing, changes) %}
  {% endif %}
  {{ return(wanted) }}
{%- endmacro %}
