"""The SMQP commands that the server carries out: login, topics, publishing, subscribing, queries and settings.

The functions work on the server's core. Which function carries out which command is in the table of `engine.py`, one
folder up.
"""
