{# Each strategy is one text, so one transaction, which runs again if another writer changes what it has read. #}

{% macro alluvia__get_incremental_default_sql(arg_dict) -%}
  {% if arg_dict['unique_key'] %}
    {{ return(get_incremental_merge_sql(arg_dict)) }}
  {% endif %}
  {{ return(get_incremental_append_sql(arg_dict)) }}
{%- endmacro %}

{% macro alluvia__keys(unique_key) -%}
  {{ return([unique_key] if unique_key is string else (unique_key or [])) }}
{%- endmacro %}

{% macro alluvia__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates=none) -%}
  {%- set names = dest_columns | map(attribute='quoted') | list -%}
  {%- set keys = alluvia__keys(unique_key) -%}
  {%- if not keys -%}
    insert into {{ target }} ({{ names | join(', ') }})
    select {{ names | join(', ') }} from {{ source }} as dbt_internal_source
  {%- else -%}
    {%- set on = [] + (incremental_predicates or []) -%}
    {%- for key in keys -%}
      {%- do on.append('DBT_INTERNAL_SOURCE.' ~ key ~ ' = DBT_INTERNAL_DEST.' ~ key) -%}
    {%- endfor -%}
    {%- set updated = get_merge_update_columns(
      config.get('merge_update_columns'), config.get('merge_exclude_columns'), dest_columns
    ) -%}
    merge into {{ target }} as DBT_INTERNAL_DEST
    using {{ source }} as DBT_INTERNAL_SOURCE
    on ({{ on | join(') and (') }})
    {% if updated -%}
    when matched then update set
      {% for name in updated -%}
        {{ name }} = DBT_INTERNAL_SOURCE.{{ name }}{{ ', ' if not loop.last }}
      {%- endfor %}
    {%- endif %}
    when not matched then insert ({{ names | join(', ') }})
    values ({% for name in names %}DBT_INTERNAL_SOURCE.{{ name }}{{ ', ' if not loop.last }}{% endfor %})
  {%- endif -%}
{%- endmacro %}

{# The model is read once: a row for each key deletes what has it, and the rows themselves, which have none, are added.
   No column of theirs has the name of one of the table, so that predicates may name columns of the table alone. #}
{% macro alluvia__get_delete_insert_merge_sql(target, source, unique_key, dest_columns, incremental_predicates) -%}
  {%- set names = dest_columns | map(attribute='quoted') | list -%}
  {%- set keys = alluvia__keys(unique_key) -%}
  {%- if not keys -%}
    insert into {{ target }} ({{ names | join(', ') }})
    select {{ names | join(', ') }} from {{ source }} as dbt_internal_source
  {%- else -%}
    {%- set on = [] + (incremental_predicates or []) -%}
    {%- for key in keys -%}
      {%- do on.append('DBT_INTERNAL_DEST.' ~ key ~ ' = DBT_INTERNAL_SOURCE.dbt_key_' ~ loop.index) -%}
    {%- endfor -%}
    merge into {{ target }} as DBT_INTERNAL_DEST
    using (
      with dbt_model as materialized {{ source }}
      select distinct
        true as dbt_deletes,
        {% for key in keys %}{{ key }} as dbt_key_{{ loop.index }}, {% endfor %}
        {% for name in names %}null as dbt_column_{{ loop.index }}{{ ', ' if not loop.last }}{% endfor %}
      from dbt_model
      union all
      select
        false,
        {% for key in keys %}null, {% endfor %}
        {{ names | join(', ') }}
      from dbt_model
    ) as DBT_INTERNAL_SOURCE
    on ({{ on | join(') and (') }})
    when matched then delete
    when not matched and not DBT_INTERNAL_SOURCE.dbt_deletes then insert ({{ names | join(', ') }})
    values ({% for name in names %}DBT_INTERNAL_SOURCE.dbt_column_{{ loop.index }}{{ ', ' if not loop.last }}{% endfor %})
  {%- endif -%}
{%- endmacro %}

{# A batch replaces the rows of its time. #}
{% macro alluvia__get_incremental_microbatch_sql(arg_dict) -%}
  {%- set event_time = model.config.event_time -%}
  {%- set when = [] + (arg_dict['incremental_predicates'] or []) -%}
  {%- set start = model.config.get('__dbt_internal_microbatch_event_time_start') -%}
  {%- set end = model.config.get('__dbt_internal_microbatch_event_time_end') -%}
  {%- if start -%}
    {%- do when.append(event_time ~ " >= '" ~ start ~ "'") -%}
  {%- endif -%}
  {%- if end -%}
    {%- do when.append(event_time ~ " < '" ~ end ~ "'") -%}
  {%- endif -%}
  {%- if not start and not end -%}
    {%- do exceptions.raise_compiler_error("microbatch: dbt named no time for the batch of " ~ arg_dict['target_relation']) -%}
  {%- endif -%}
  {%- set names = arg_dict['dest_columns'] | map(attribute='quoted') | join(', ') -%}
  delete from {{ arg_dict['target_relation'] }} as DBT_INTERNAL_DEST where ({{ when | join(') and (') }});
  insert into {{ arg_dict['target_relation'] }} ({{ names }})
  select {{ names }} from {{ arg_dict['temp_relation'] }} as dbt_internal_source
{%- endmacro %}
