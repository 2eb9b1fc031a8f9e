{% macro alluvia__type_float() -%}
  double
{%- endmacro %}

{% macro alluvia__safe_cast(field, type) -%}
  try_cast({{ field }} as {{ type }})
{%- endmacro %}

{% macro alluvia__split_part(string_text, delimiter_text, part_number) -%}
  split_part({{ string_text }}, {{ delimiter_text }}, {{ part_number }})
{%- endmacro %}

{% macro alluvia__array_concat(array_1, array_2) -%}
  list_concat({{ array_1 }}, {{ array_2 }})
{%- endmacro %}

{% macro alluvia__array_construct(inputs, data_type) -%}
  {%- if inputs -%} [{{ inputs | join(', ') }}] {%- else -%} cast([] as {{ data_type }}[]) {%- endif -%}
{%- endmacro %}

{% macro alluvia__generate_series(upper_bound) -%}
  select unnest(generate_series(1, {{ upper_bound }})) as generated_number
{%- endmacro %}

{% macro alluvia__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  array_to_string(
    array_agg({{ measure }} {{ order_by_clause if order_by_clause }}){% if limit_num %}[1:{{ limit_num }}]{% endif %},
    {{ delimiter_text }}
  )
{%- endmacro %}
