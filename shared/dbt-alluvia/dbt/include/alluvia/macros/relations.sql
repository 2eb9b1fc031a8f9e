{% macro alluvia__list_relations_without_caching(schema_relation) -%}
  {% call statement('list_relations_without_caching', fetch_result=True) -%}
    select
      table_catalog as database,
      table_name as name,
      table_schema as schema,
      case table_type when 'VIEW' then 'view' else 'table' end as type
    from information_schema.tables
    where table_schema = {{ alluvia__text(schema_relation.schema | lower) }}
  {%- endcall %}
  {{ return(load_result('list_relations_without_caching').table) }}
{%- endmacro %}

{% macro alluvia__get_columns_in_relation(relation) -%}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{%- endmacro %}

{% macro alluvia__drop_relation(relation) -%}
  {%- call statement('drop_relation', auto_begin=False) -%}
    drop {{ relation.type }} if exists {{ relation.render() }}
  {%- endcall -%}
{%- endmacro %}

{% macro alluvia__get_drop_sql(relation) -%}
  drop {{ relation.type }} if exists {{ relation.render() }}
{%- endmacro %}

{% macro alluvia__rename_relation(from_relation, to_relation) -%}
  {% do exceptions.raise_compiler_error(
    "A lake does not rename tables: create " ~ to_relation ~ " from " ~ from_relation ~ ", and drop " ~ from_relation
  ) %}
{%- endmacro %}

{% macro alluvia__get_create_materialized_view_as_sql(relation, sql) -%}
  {% do exceptions.raise_compiler_error(
    "materialized_view: a lake has rollups, which dbt does not declare. Create " ~ relation ~ " with "
    ~ "lake.create_rollup, and name it as a source"
  ) %}
{%- endmacro %}

{# A table and a view cannot share a name, and none replaces the other in one statement. The query is tried first, so
   that one with an error leaves what there is. #}
{% macro alluvia__make_way(existing, target, sql) -%}
  {% if existing is not none and existing.type != target.type %}
    {% do get_column_schema_from_query(sql) %}
    {% do drop_relation_if_exists(existing) %}
  {% endif %}
{%- endmacro %}

{% macro alluvia__alter_relation_add_remove_columns(relation, add_columns, remove_columns) -%}
  {% set statements = alluvia__column_changes(relation, add_columns or [], remove_columns or []) %}
  {% if statements %}
    {% do run_query(statements | join(';\n')) %}
  {% endif %}
{%- endmacro %}

{% macro alluvia__column_changes(relation, add_columns, remove_columns) -%}
  {% set statements = [] %}
  {% if add_columns %}
    {% set added = [] %}
    {% for column in add_columns %}
      {% do added.append(column.quoted ~ ' ' ~ (column.stored_type or column.data_type)) %}
    {% endfor %}
    {% do statements.append('alter table ' ~ relation.render() ~ ' add columns (' ~ added | join(', ') ~ ')') %}
  {% endif %}
  {% if remove_columns %}
    {% set names = remove_columns | map(attribute='quoted') | join(', ') %}
    {% do statements.append('alter table ' ~ relation.render() ~ ' drop columns (' ~ names ~ ')') %}
  {% endif %}
  {{ return(statements) }}
{%- endmacro %}

{% macro alluvia__create_columns(relation, columns) -%}
  {% do alluvia__alter_relation_add_remove_columns(relation, columns, none) %}
{%- endmacro %}

{# A column keeps its type, so another one takes its place, last in the table. #}
{% macro alluvia__alter_column_type(relation, column_name, new_column_type) -%}
  {% if not execute %}{{ return('') }}{% endif %}
  {% set stored = get_column_schema_from_query('select cast(null as ' ~ new_column_type ~ ') as c')[0].stored_type %}
  {% set old = adapter.quote(column_name) %}
  {% set new = adapter.quote(column_name ~ '__dbt_alter') %}
  {% call statement('alter_column_type') -%}
    alter table {{ relation.render() }} add column {{ new }} {{ stored }};
    update {{ relation.render() }} set {{ new }} = cast({{ old }} as {{ new_column_type }});
    alter table {{ relation.render() }} drop column {{ old }};
    alter table {{ relation.render() }} rename column {{ new }} to {{ old }}
  {%- endcall %}
{%- endmacro %}

{% macro alluvia__apply_grants(relation, grant_config, should_revoke=True) -%}
  {% if grant_config %}
    {% do exceptions.raise_compiler_error(
      "grants: a lake has none. Tokens say who reads and writes which tables: see `alluvia token --help`"
    ) %}
  {% endif %}
{%- endmacro %}

{% macro alluvia__alter_relation_comment(relation, relation_comment) -%}
  comment on {{ relation.type }} {{ relation.render() }} is {{ alluvia__text(relation_comment) if relation_comment else 'null' }}
{%- endmacro %}

{# The texts for documented columns; a column without a description has no comment. #}
{% macro alluvia__column_comments(relation, column_dict) -%}
  {%- set comments = [] -%}
  {%- for name, column in column_dict.items() -%}
    {%- set text = alluvia__text(column.description) if column.description else 'null' -%}
    {%- do comments.append('comment on column ' ~ relation.render() ~ '.' ~ adapter.quote(name) ~ ' is ' ~ text) -%}
  {%- endfor -%}
  {{ return(comments) }}
{%- endmacro %}

{% macro alluvia__alter_column_comment(relation, column_dict) -%}
  {{ alluvia__column_comments(relation, column_dict) | join(';\n') }}
{%- endmacro %}

{# All comments are one text, which is one commit of a table, and none where all are there already. A model that is in
   a YAML file without a description has no comment. #}
{% macro alluvia__persist_docs(relation, model, for_relation, for_columns) -%}
  {% set comments = [] %}
  {% if for_relation and config.persist_relation_docs() and (model.description or model.patch_path) %}
    {% do comments.append(alter_relation_comment(relation, model.description)) %}
  {% endif %}
  {% if for_columns and config.persist_column_docs() and model.columns %}
    {% set names = adapter.get_columns_in_relation(relation) | map(attribute='name') | list %}
    {% do comments.extend(alluvia__column_comments(relation, validate_doc_columns(relation, model.columns, names))) %}
  {% endif %}
  {% if comments %}
    {% do run_query(comments | join(';\n')) %}
  {% endif %}
{%- endmacro %}
