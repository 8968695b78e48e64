"""What every broker adapter promises, as tests over a fixture `broker` with `.url` and `.connect()`.

`test_broker_contract.py` runs them for each adapter. Where adapters may differ, a test asks `capabilities`, never for a
broker's name. That something does *not* arrive is shown by what arrives instead: a marker sent after it, or the
message that a second consumer gets; no test waits for time to pass.
"""

from broker_contract_deliveries import DeliveryContract, LifeCycleContract, TransactionContract
from broker_contract_messages import DestinationContract, MessageContract


class BrokerContract(MessageContract, DestinationContract, DeliveryContract, TransactionContract, LifeCycleContract):
    """The whole contract. A subclass in a test module gives it the fixture `broker`."""
