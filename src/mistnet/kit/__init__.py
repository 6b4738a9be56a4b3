"""The foundation that every feature uses: database, SQL, HTTP transport, clock, export. It knows no feature."""
