"""Every night: a suite is run, what it showed is remembered in a ledger, and the morning's report says what is new."""
