"""The serving side: services with their operations, and the dispatcher that runs and answers requests.

The rules of the exchange are in `soapjms.protocol`; calling is in `soapjms.client`. Processes and signals do not
belong here.
"""
