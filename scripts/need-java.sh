#!/usr/bin/env bash
# Check for a JDK of version 17 or newer and Maven: the tests run real brokers and Spark, and none is skipped without
# them. As root on Debian or Ubuntu, install them; otherwise say what to type.
set -euo pipefail

oldest=17

java=${JAVA_HOME:+$JAVA_HOME/bin/}java

java_is_good() {
  local version
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
  [ -n "$version" ] && [ "$version" -ge "$oldest" ] &&
    "$java" --list-modules | grep '^jdk\.compiler' >/dev/null # tests run single .java files directly
}

packages=()
if ! java_is_good; then
  if [ -n "${JAVA_HOME:-}" ]; then
    echo "JAVA_HOME must be a JDK of version $oldest or newer, got $JAVA_HOME. Set it to one, or unset it." >&2
    exit 1
  fi
  if apt-cache show "openjdk-$oldest-jdk-headless" >/dev/null 2>&1; then
    packages+=("openjdk-$oldest-jdk-headless")
  else
    packages+=(default-jdk-headless)
  fi
fi
command -v mvn >/dev/null || packages+=(maven)
[ "${#packages[@]}" -gt 0 ] || exit 0

"$(dirname "$0")/apt-install.sh" "A JDK of version $oldest or newer and Maven are needed." "${packages[@]}"
if ! java_is_good; then
  echo "There is still no JDK of version $oldest or newer: the first java on PATH is $(command -v java)." >&2
  echo "Choose another: update-alternatives --config java" >&2
  exit 1
fi
