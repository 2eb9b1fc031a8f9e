{% materialization table, adapter='alluvia' -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}

  {% do apply_grants(target, config.get('grants'), should_revoke=True) %}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do alluvia__make_way(existing, target, sql) %}
  {% call statement('main') -%}
    {{ get_create_table_as_sql(False, target, sql) }}
  {%- endcall %}

  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{%- endmaterialization %}
