"""The calling side: `Client`, its pending calls, its reply destinations, and retries of requests.

The rules of the exchange are in `soapjms.protocol`; serving is in `soapjms.service`.
"""
