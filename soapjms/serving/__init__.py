"""Services that run until they are told to end, as `soapjms serve` has them, for programs: see docs/serving.md.

`runner.py` serves in one process, `supervisor.py` in several, `status_page.py` tells over HTTP how they are. Words on a
terminal belong in `soapjms.cli`, answering a request in `soapjms.service`.
"""

from soapjms.serving.runner import ServeOptions, watch
from soapjms.serving.status_page import Board, StatusPage, StatusResponse, health_answers
from soapjms.serving.supervisor import serve

__all__ = ["Board", "ServeOptions", "StatusPage", "StatusResponse", "health_answers", "serve", "watch"]
