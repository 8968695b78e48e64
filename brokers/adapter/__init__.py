"""What the broker adapters share: the connection, the consumer, the brokers to try, and waiting for a connection.

No protocol, no message format and no client library belongs here: those are the adapter's own.
"""
