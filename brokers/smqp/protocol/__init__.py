"""The SMQP protocol: reads and writes words, identifiers, topics, commands, replies and messages. No I/O.

Client and server build on it. Nothing here opens a socket, reads a clock or stores a message.
"""
