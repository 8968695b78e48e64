"""Services that run until they are told to stop, as with `soapjms serve`, for programs: see docs/serving.md.

`runner.py` serves in one process, `supervisor.py` in several, and `status_page.py` reports their state over HTTP.
`live_report.py` serves the report of a replay that goes on; it needs the extra `replay` and is imported by itself.
Terminal output belongs in `soapjms.cli`, answering a request in `soapjms.service`.
"""

from soapjms.serving.runner import ServeOptions, watch
from soapjms.serving.status_page import Board, StatusPage, StatusResponse, health_answers
from soapjms.serving.supervisor import serve

__all__ = ["Board", "ServeOptions", "StatusPage", "StatusResponse", "health_answers", "serve", "watch"]
