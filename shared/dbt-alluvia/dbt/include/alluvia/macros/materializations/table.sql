{% materialization table, adapter='alluvia' -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}

  {% do alluvia__begin(target) %}

  {% do alluvia__make_way(existing, target, sql) %}
  {% call statement('main') -%}
    {{ get_create_table_as_sql(False, target, sql) }}
  {%- endcall %}

  {{ return(alluvia__end(target)) }}
{%- endmaterialization %}
