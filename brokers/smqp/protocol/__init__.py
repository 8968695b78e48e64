"""The SMQP protocol itself: words, identifiers, topics, commands, replies and messages, read and written. No I/O.

Client and server both build on it. Nothing here opens a socket, reads a clock or keeps a message.
"""
