#!/bin/sh
# The postStart hook that holds the other containers: "wait" returns when the proxy is ready, and
# fails after a timeout.
limit=${2#--timeoutSeconds=}
tries=$((${limit:-60} * 5))
until curl -s -o /dev/null http://127.0.0.1:15021/healthz/ready; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || { echo "Error: timeout waiting for Envoy proxy to become ready" >&2; exit 1; }
  sleep 0.2
done
