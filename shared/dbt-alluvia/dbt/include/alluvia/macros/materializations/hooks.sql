{# A hook is a transaction of its own, so none needs the COMMIT that dbt sends before those outside a transaction. #}
{% macro run_hooks(hooks, inside_transaction=True) -%}
  {% for hook in hooks | selectattr('transaction', 'equalto', inside_transaction) %}
    {% set rendered = render(hook.get('sql')) | trim %}
    {% if rendered %}
      {% call statement(auto_begin=False) -%}
        {{ rendered }}
      {%- endcall %}
    {% endif %}
  {% endfor %}
{%- endmacro %}

{# What comes before the statement of each materialization. #}
{% macro alluvia__begin(target) -%}
  {% do apply_grants(target, config.get('grants'), should_revoke=True) %}
  {% do run_hooks(pre_hooks, inside_transaction=False) %}
  {% do run_hooks(pre_hooks, inside_transaction=True) %}
{%- endmacro %}

{# What comes after it. Returns what a materialization returns. #}
{% macro alluvia__end(target) -%}
  {% do persist_docs(target, model) %}
  {% do run_hooks(post_hooks, inside_transaction=True) %}
  {% do run_hooks(post_hooks, inside_transaction=False) %}
  {{ return({'relations': [target]}) }}
{%- endmacro %}
