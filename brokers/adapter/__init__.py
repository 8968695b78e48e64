"""The parts that broker adapters share: connection, consumer, broker endpoints, and waiting for a connection.

Protocols, message formats and client libraries belong in the adapters, not here.
"""
