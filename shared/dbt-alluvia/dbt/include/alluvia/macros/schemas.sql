{# A value as a text in SQL. #}
{% macro alluvia__text(value) -%}
  {{ dbt.string_literal(dbt.escape_single_quotes(value | string)) }}
{%- endmacro %}

{% macro alluvia__create_schema(relation) -%}
  {# main is in every lake #}
  {% if relation.schema | lower != 'main' %}
    {%- call statement('create_schema') -%}
      create schema if not exists {{ relation.without_identifier().include(database=false) }}
    {%- endcall -%}
  {% endif %}
{%- endmacro %}

{% macro alluvia__drop_schema(relation) -%}
  {%- call statement('drop_schema') -%}
    drop schema if exists {{ relation.without_identifier().include(database=false) }} cascade
  {%- endcall -%}
{%- endmacro %}

{% macro alluvia__information_schema_name(database) -%}
  information_schema
{%- endmacro %}

{% macro alluvia__list_schemas(database) -%}
  {{ return(run_query("select distinct schema_name from information_schema.schemata")) }}
{%- endmacro %}

{% macro alluvia__check_schema_exists(information_schema, schema) -%}
  {% set sql -%}
    select count(*) from information_schema.schemata where schema_name = {{ alluvia__text(schema | lower) }}
  {%- endset %}
  {{ return(run_query(sql)) }}
{%- endmacro %}
