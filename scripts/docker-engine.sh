#!/bin/sh
# As root on Debian, install docker.io and start dockerd; does nothing where an engine answers.
set -eu
answers() { docker version >/dev/null 2>&1; }
if answers; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "No Docker engine answers, and one is installed here only as root on Debian: install Docker Engine and start it." >&2
  exit 1
fi
if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    docker.io iptables tini procps >/dev/null
fi
log=${DOCKERD_LOG:-/var/log/dockerd.log}
setsid dockerd >"$log" 2>&1 </dev/null &
for _ in $(seq 120); do
  if answers; then exit 0; fi
  sleep 0.5
done
echo "dockerd did not answer within 60 s; the end of $log:" >&2
tail -n 20 "$log" >&2
exit 1
