"""A lake over Arrow Flight SQL, for clients of ADBC, JDBC and ODBC. Loaded only where it is asked for."""
