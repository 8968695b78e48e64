"""The calling side: `Client`, the calls under way, where their replies come in, and how requests are sent again.

The rules of the exchange are in `soapjms.protocol`, serving is in `soapjms.service`.
"""
