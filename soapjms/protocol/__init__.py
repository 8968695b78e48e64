"""The SOAP/JMS binding itself, pure: no I/O, no clock, no thread, no randomness.

A file imports only files above it in this order: names, errors, charsets, content, xml, uri, properties, wsdl,
envelope, members, record, exchange, reading, assertions, mep, requesting, responding. Read them in that order.
"""
