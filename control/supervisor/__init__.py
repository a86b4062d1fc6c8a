"""`make up`: the whole system on one machine, as children of one process. Knows processes, no Django.

It runs before Django's settings can be read, because it makes the secrets that they need.
"""
