{% macro alluvia__current_timestamp() -%}
  now()
{%- endmacro %}

{% macro alluvia__current_timestamp_in_utc_backcompat() -%}
  (current_timestamp at time zone 'utc')::{{ type_timestamp() }}
{%- endmacro %}

{% macro alluvia__date(year, month, day) -%}
  make_date({{ year }}, {{ month }}, {{ day }})
{%- endmacro %}

{# A text between quotes is read as a time. #}
{% macro alluvia__dateadd(datepart, interval, from_date_or_timestamp) -%}
  {%- set units = {'quarter': (3, 'month'), 'week': (7, 'day')} -%}
  {%- set times, unit = units.get(datepart | lower, (1, datepart)) -%}
  {%- set moment = from_date_or_timestamp | string | trim -%}
  ({{ 'cast(' ~ moment ~ ' as timestamp)' if moment.startswith("'") else moment }} + cast({{ interval }} as bigint) * {{ times }} * interval 1 {{ unit }})
{%- endmacro %}

{# Weeks begin on Sundays, as those of dbt. #}
{% macro alluvia__datediff(first_date, second_date, datepart) -%}
  {%- if datepart | lower == 'week' -%}
    (date_diff(
      'day',
      date_trunc('week', cast({{ first_date }} as timestamp) + interval 1 day),
      date_trunc('week', cast({{ second_date }} as timestamp) + interval 1 day)
    ) // 7)
  {%- else -%}
    date_diff('{{ datepart }}', cast({{ first_date }} as timestamp), cast({{ second_date }} as timestamp))
  {%- endif -%}
{%- endmacro %}

{% macro alluvia__last_day(date, datepart) -%}
  cast({{ dbt.dateadd(datepart, 1, dbt.date_trunc(datepart, date)) }} - interval 1 day as date)
{%- endmacro %}
