"""The SOAP/JMS binding itself, pure: no I/O, no clock, no thread, no randomness.

A file imports only files above it in this order: names, errors, xml, uri, properties, wsdl, content, envelope, members,
record, exchange, reading, assertions, mep, requesting, responding. Read them in that order.
"""
