"""The SOAP/JMS binding itself, pure: no I/O, no clock, no thread, no randomness.

A file imports only files above it in this order: names, errors, text, limits, content, xml, simple_types, uri, values,
properties, wsdl, envelope, wsa, attachments, record, exchange, received_message, assertions, mep, message_parts,
requesting, responding, senders, repetition. Read them in that order.
"""
