"""The parts that broker adapters share: connection, consumer, transaction, redelivery, broker endpoints, and waiting.

Protocols, message formats and client libraries belong in the adapters, not here.
"""
