"""The SOAP/JMS binding itself, pure: no I/O, no clock, no thread, no randomness.

A file imports only files above it in this order: names, errors, showing, limits, charsets, content, xml, uri,
values, properties, wsdl, envelope, understanding, wsa, attachments, members, record, exchange, described, reading,
assertions, mep, writing, requesting, responding, senders. Read them in that order.
"""
