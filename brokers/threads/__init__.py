"""Threads for connections and their callers: a pool for short tasks, futures with their callbacks, and a timer.

Nothing here knows a broker, a protocol or a message.
"""
