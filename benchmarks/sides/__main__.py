"""Be one side of a run: `python -m sides MODULE:NAME SETTING`, where SETTING is JSON.

A service prints `ready` and ends with its standard input; a client prints its figures as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module

from sides import Measured, Setting

where, setting = sys.argv[1], Setting(**json.loads(sys.argv[2]))
module, _, name = where.partition(":")
with getattr(import_module(f"sides.{module}"), name)(setting) as side:
    if isinstance(side, Measured):
        print(json.dumps(asyncio.run(side.figures(setting))))
    else:
        print("ready", flush=True)
        sys.stdin.read()
