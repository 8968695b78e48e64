#!/usr/bin/env bash
# Check that the given Python can make a virtual environment for soapjms, and say what to type if it cannot.
# As root on Debian or Ubuntu, install a missing `venv`.
set -euo pipefail

python=${1:?usage: scripts/need-python.sh PYTHON}

if ! command -v "$python" >/dev/null; then
  echo "There is no $python. soapjms needs Python 3.11 to 3.14: make PYTHON=/path/to/python3.12 ..." >&2
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'; then
  echo "$python is $("$python" --version 2>&1); soapjms needs 3.11 to 3.14." >&2
  echo "Name another one: make PYTHON=/path/to/python3.12 ..." >&2
  exit 1
fi
if "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  exit 0
fi

package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
"$(dirname "$0")/apt-install.sh" "$python has no venv." "$package"
