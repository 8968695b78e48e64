#!/usr/bin/env bash
# Install packages, if run as root on Debian or Ubuntu; otherwise say what is needed and what to type.
set -euo pipefail

needed=${1:?usage: scripts/apt-install.sh WHAT-IS-NEEDED PACKAGE...}
shift

install="apt-get install -y --no-install-recommends $*"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "$needed On Debian and Ubuntu: sudo $install" >&2
  exit 1
fi
apt-get update -q
DEBIAN_FRONTEND=noninteractive $install
