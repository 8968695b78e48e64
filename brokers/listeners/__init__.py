"""The parts that all servers share: limits on password guesses, handshakes and connections, and on who reaches them.

Protocols do not belong here: the AMQP listener, the SMQP server, the HTTP bridge and the status page all use this.
"""
