"""Any page of the web, fetched with care: for its owner, and for the machine we run on."""
