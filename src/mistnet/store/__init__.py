"""The only place with SQL: database, tables, statements, migrations."""
