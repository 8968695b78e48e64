"""Bridges between SOAP over HTTP and SOAP over JMS.

`http.py` lets HTTP clients reach services over JMS: an ASGI application, to mount or to serve with `listener.py`.
`wsgi.py` turns a WSGI application into a service that a dispatcher serves. Both read and write through `message.py`;
`wsdl.py` makes the WSDL for HTTP clients.
"""
