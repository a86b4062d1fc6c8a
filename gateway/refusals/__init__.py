"""Every answer that says no, as HTTP: status, body in the caller's API, when to come back, in which language."""
