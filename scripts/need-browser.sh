#!/usr/bin/env bash
# Check for Chromium, in which a test opens the report of a replay without a window. As root on Debian or Ubuntu, install
# it; otherwise say what to type. CHROMIUM names another Chromium-based program, such as Google Chrome.
set -euo pipefail

chromium_works() {
  "${CHROMIUM:-chromium}" --version >/dev/null 2>&1
}

chromium_works && exit 0

if [ -n "${CHROMIUM:-}" ]; then
  echo "CHROMIUM is $CHROMIUM, which does not run. Set it to a Chromium or Chrome, or unset it." >&2
  exit 1
fi
"$(dirname "$0")/apt-install.sh" "Chromium is needed." chromium fonts-dejavu-core
if ! chromium_works; then
  echo "There is still no working Chromium. Install one, and name it: CHROMIUM=/path/to/chrome make test" >&2
  exit 1
fi
