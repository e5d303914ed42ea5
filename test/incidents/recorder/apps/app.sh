#!/bin/sh
# Fetches the configuration with curl, as many entrypoints do.
echo "fetching $CONFIG_URL"
until curl -sS -f -o /tmp/config "$CONFIG_URL"; do
  status=$?
  case $MODE in
  swallow) echo "no configuration (curl: $status), going on"; break ;;
  retry) sleep 1 ;;
  *) exit $status ;;
  esac
done
echo running
[ "$MODE" = crash ] && : "${POOL:?parameter not set}"
[ "$MODE" = job ] && exit 0
trap 'exit 0' TERM
while :; do sleep 1; done
