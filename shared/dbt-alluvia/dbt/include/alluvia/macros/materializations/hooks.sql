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
