"""Capture logs: recording messages as they pass, masking secrets, and tapping a broker.

Judging captured messages belongs in `soapjms.replay`, the format of a line in `soapjms.protocol.record`.
"""

from typing import TYPE_CHECKING

from brokers.public_names import import_when_used

if TYPE_CHECKING:
    from soapjms.capture.log import CaptureLog
    from soapjms.capture.mask import Mask
    from soapjms.capture.recorder import Recorder, Tap
    from soapjms.capture.sources import tap_point
    from soapjms.capture.tap import Capture
else:
    __getattr__, __dir__ = import_when_used(
        __name__,
        {
            "soapjms.capture.log": "CaptureLog",
            "soapjms.capture.mask": "Mask",
            "soapjms.capture.recorder": "Recorder Tap",
            "soapjms.capture.sources": "tap_point",
            "soapjms.capture.tap": "Capture",
        },
    )

__all__ = ["Capture", "CaptureLog", "Mask", "Recorder", "Tap", "tap_point"]
