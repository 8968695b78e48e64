#!/usr/bin/env bash
# Make a Debian 13 with RabbitMQ 4 in a folder, if run as root on Debian: older ones have RabbitMQ 3 only, whose AMQP 1.0
# is another one. Otherwise say how to name a RabbitMQ that runs.
set -euo pipefail

folder=${1:?usage: scripts/need-rabbitmq.sh FOLDER}
needed="Tests with RabbitMQ need one: RABBITMQ_URL=amqp://USER:PASSWORD@HOST names a RabbitMQ 4 that runs."

[ -n "${RABBITMQ_URL:-}" ] && exit 0
command -v debootstrap >/dev/null || "$(dirname "$0")/apt-install.sh" "$needed" debootstrap
rm -rf "$folder"
mkdir -p "$folder"
debootstrap --variant=minbase --include=rabbitmq-server trixie "$folder" >"$folder.log" || {
  echo "$needed Debian 13 could not be fetched: $folder.log" >&2
  exit 1
}
rm "$folder.log"
