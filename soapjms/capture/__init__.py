"""Capture logs: recording messages as they pass, masking secrets, and tapping a broker.

Judging captured messages belongs in `soapjms.replay`, the format of a line in `soapjms.protocol.record`.
"""

from soapjms.capture.mask import Mask
from soapjms.capture.recorder import Recorder, Tap
from soapjms.capture.sources import tap_point
from soapjms.capture.tap import Capture

__all__ = ["Capture", "Mask", "Recorder", "Tap", "tap_point"]
