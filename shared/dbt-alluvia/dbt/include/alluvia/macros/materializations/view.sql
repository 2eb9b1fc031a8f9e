{% materialization view, adapter='alluvia' -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='view') -%}

  {% do alluvia__begin(target) %}

  {% do alluvia__make_way(existing, target, sql) %}
  {% call statement('main') -%}
    {{ get_create_view_as_sql(target, sql) }}
  {%- endcall %}

  {{ return(alluvia__end(target)) }}
{%- endmaterialization %}
