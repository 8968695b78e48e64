"""What all servers here share: limits on guessed passwords, handshakes and connections, and who may reach them.

No protocol belongs here: the AMQP listener, the SMQP server, the HTTP bridge and the status page all use it.
"""
