{# The layout and the properties of a model's table, after its columns. #}
{% macro alluvia__layout() -%}
  {%- for name, words in [('partition_by', 'partition by'), ('sort_by', 'sort by'), ('cluster_by', 'cluster by')] -%}
    {%- set fields = config.get(name) -%}
    {%- if fields %} {{ words }} ({{ fields if fields is string else fields | join(', ') }}){% endif -%}
  {%- endfor -%}
  {%- set properties = config.get('table_properties') -%}
  {%- if properties %} tblproperties (
    {%- for name, value in properties.items() -%}
      {{ alluvia__text(name) }} = {{ alluvia__text(value) }}
      {{- ', ' if not loop.last }}
    {%- endfor -%}
  ){% endif -%}
{%- endmacro %}

{# One text, so one transaction: readers see the old table or the new one. #}
{% macro alluvia__create_table_as(temporary, relation, compiled_code) -%}
  {%- if temporary -%}
    {% do exceptions.raise_compiler_error("A lake has no temporary tables: use a common table expression, or a model") %}
  {%- endif -%}
  {%- set sql_header = config.get('sql_header', none) -%}
  {{ sql_header if sql_header is not none }}
  {% if config.get('contract').enforced -%}
    {{ get_assert_columns_equivalent(compiled_code) }}
    create or replace table {{ relation.render() }} {{ get_table_columns_and_constraints() }} {{ alluvia__layout() }};
    insert into {{ relation.render() }} ({{ alluvia__contract_columns() }})
    {{ get_select_subquery(compiled_code) }}
  {%- else -%}
    create or replace table {{ relation.render() }}{{ alluvia__layout() }} as
    {{ compiled_code }}
  {%- endif %}
{%- endmacro %}

{% macro alluvia__contract_columns() -%}
  {{ adapter.dispatch('get_column_names', 'dbt')() }}
{%- endmacro %}

{# The types of a contract are those of queries. The table gets what CREATE TABLE AS would give it. #}
{% macro alluvia__get_table_columns_and_constraints() -%}
  {%- set stored = get_column_schema_from_query(get_empty_schema_sql(model['columns'])) -%}
  {%- set columns = {} -%}
  {%- for name, column in model['columns'].items() -%}
    {%- do columns.update({name: dict(column, data_type=stored[loop.index0].stored_type)}) -%}
  {%- endfor -%}
  {%- set parts = adapter.render_raw_columns_constraints(raw_columns=columns)
    + adapter.render_raw_model_constraints(raw_constraints=model['constraints']) -%}
  ({{ parts | join(',\n') }})
{%- endmacro %}

{% macro alluvia__create_view_as(relation, sql) -%}
  {%- if config.get('contract').enforced -%}
    {{ get_assert_columns_equivalent(sql) }}
  {%- endif -%}
  {%- set sql_header = config.get('sql_header', none) -%}
  {{ sql_header if sql_header is not none }}
  create or replace view {{ relation.render() }} as
  {{ sql }}
{%- endmacro %}

{% macro alluvia__can_clone_table() -%}
  {{ return(True) }}
{%- endmacro %}

{# A clone replaces nothing in one statement, so the table of its name is dropped, once nothing else is in the way. #}
{% macro alluvia__create_or_replace_clone(this_relation, defer_relation) -%}
  {% set sql = 'create table ' ~ this_relation.render() ~ ' shallow clone ' ~ defer_relation.render() %}
  {% if load_cached_relation(this_relation) is not none %}
    {% do adapter.check_that_only_the_name_is_taken(sql) %}
    {% do run_query('drop table if exists ' ~ this_relation.render()) %}
  {% endif %}
  {{ sql }}
{%- endmacro %}
