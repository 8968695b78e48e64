#!/usr/bin/env bash
# Check that python-qpid-proton, which on Linux comes as source, can be compiled: this needs a C compiler and the headers
# of the given Python. As root on Debian or Ubuntu, install them; otherwise say what to type.
set -euo pipefail

python=${1:?usage: scripts/need-c.sh PYTHON}

[ "$(uname)" = Linux ] || exit 0

has_headers() {
  [ -f "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]
}

packages=()
command -v "${CC:-cc}" >/dev/null || packages+=(gcc libc6-dev)
has_headers || packages+=("python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-dev")
[ "${#packages[@]}" -gt 0 ] || exit 0

"$(dirname "$0")/apt-install.sh" "A C compiler and the headers of $python are needed." "${packages[@]}"
