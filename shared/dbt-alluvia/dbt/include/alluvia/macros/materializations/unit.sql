{% materialization unit, adapter='alluvia' -%}
  {%- set expected_rows = config.get('expected_rows') -%}
  {%- set expected_sql = config.get('expected_sql') -%}
  {%- set tested = expected_rows[0].keys() if expected_rows | length > 0 else get_columns_in_query(sql) -%}
  {%- set types = {} -%}
  {%- set quoted = {} -%}
  {%- for column in get_column_schema_from_query(sql) -%}
    {%- do types.update({column.name | lower: column.data_type}) -%}
    {%- do quoted.update({column.name | lower: column.quoted}) -%}
  {%- endfor -%}
  {%- set tested_quoted = [] -%}
  {%- for name in tested -%}
    {%- do tested_quoted.append(quoted[name | lower]) -%}
  {%- endfor -%}
  {%- if not expected_sql -%}
    {%- set expected_sql = get_expected_sql(expected_rows, types, quoted) -%}
  {%- endif -%}

  {% call statement('main', fetch_result=True) -%}
    {{ get_unit_test_sql(sql, expected_sql, tested_quoted) }}
  {%- endcall %}
  {{ return({'relations': []}) }}
{%- endmaterialization %}
