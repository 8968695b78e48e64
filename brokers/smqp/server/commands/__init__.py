"""The SMQP commands of the server: login, topics, publishing, subscribing, queries and settings.

The functions work on the server's core. The table in `engine.py`, one folder up, maps commands to functions.
"""
