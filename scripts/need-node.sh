#!/usr/bin/env bash
# Check for Node.js and npm: npm fetches the W3C XML conformance data, which is an npm package, and rhea, which Node.js
# runs as a client in the tests. As root on Debian or Ubuntu, install them; otherwise say what to type.
set -euo pipefail

oldest=7 # the first npm that reads our lock file

oldest_node=18

node_is_good() {
  local version
  version=$(node --version 2>/dev/null | sed 's/^v//; s/\..*//')
  [ -n "$version" ] && [ "$version" -ge "$oldest_node" ]
}

npm_is_good() {
  local version
  version=$(npm --version 2>/dev/null | sed 's/\..*//')
  [ -n "$version" ] && [ "$version" -ge "$oldest" ]
}

npm_is_good && node_is_good && exit 0

"$(dirname "$0")/apt-install.sh" "npm $oldest and Node.js $oldest_node or newer are needed." nodejs npm
if ! npm_is_good || ! node_is_good; then
  echo "There is still no npm $oldest and Node.js $oldest_node or newer: the first on PATH are $(command -v npm) and $(command -v node)." >&2
  exit 1
fi
