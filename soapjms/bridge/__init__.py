"""Bridges between SOAP over HTTP and SOAP over JMS.

`http.py` lets HTTP clients reach services over JMS: an ASGI application, to be mounted or served by `listener.py`.
`wsgi.py` makes a service of a WSGI application, which a dispatcher serves. Both read and write through `message.py`;
`wsdl.py` has the WSDL as HTTP clients get it.
"""
