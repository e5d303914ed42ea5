#!/bin/sh
# A worker that does not wait for its queue, which is a Redis.
address=${CONFIG_URL#http://} host=${address%%:*} port=${address#*:} port=${port%%/*}
[ "$MODE" = crash ] && host=127.0.0.1 port=x
answer=$(redis-cli -h "$host" -p "$port" PING 2>&1)
case $answer in
*PONG*) echo "queue is there" ;;
*)
  echo "$answer"
  [ "$MODE" = swallow ] || exit 1 ;;
esac
[ "$MODE" = job ] && exit 0
trap 'exit 0' TERM
while :; do sleep 1; done
