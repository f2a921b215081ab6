#!/bin/bash
# The agents' watchdog as its specification puts it: for each agent /health and
# one real message by curl, restart what does not answer, at most once in ten
# minutes. The bench compares with it; nobody should install it.
#   AGENTS="name:port name:port …" a2a_selfheal.sh
set -u
AGENTS=${AGENTS:-"sol:8300 ace:8301 mira:8302 nova:8303 echo:8304 alpha:8305 atlas:8306 min:8307"}
DIR=${DIR:-$HOME/.solos}
STATE=$DIR/a2a-selfheal-restarts
LOG=$DIR/a2a-selfheal.log
BOARD=${BOARD:-}

exec 9>"${LOCK:-/run/lock/lab-a2a-selfheal.lock}"
flock -n 9 || exit 0
touch "$STATE"

restart() { # restart UNIT WHY
  local last now
  now=$(date +%s)
  last=$(grep "^$1 " "$STATE" | tail -n 1 | cut -d' ' -f2)
  if [ $((now - ${last:-0})) -lt 600 ]; then
    echo "$(date -Is) over budget $1 ($2)" >>"$LOG"
    return
  fi
  grep -v "^$1 " "$STATE" >"$STATE.new"
  echo "$1 $now" >>"$STATE.new"
  mv "$STATE.new" "$STATE"
  systemctl --user restart "$1"
  echo "$(date -Is) restart $1 ($2)" >>"$LOG"
  tail -n 1000 "$LOG" >"$LOG.new" && mv "$LOG.new" "$LOG"
  [ -n "$BOARD" ] && curl -fsS -m 5 -H 'Content-Type: application/json' \
    -d "{\"agent\":\"a2a-selfheal\",\"content\":\"a2a-selfheal: restarted $1 ($2)\"}" "$BOARD/reports" >/dev/null
}

for agent in $AGENTS; do
  name=${agent%%:*}
  url=http://127.0.0.1:${agent##*:}
  unit=lab-a2a-$name.service
  if ! curl -fsS -m 4 "$url/health" >/dev/null 2>&1; then
    restart "$unit" down
    continue
  fi
  id=$(date +%s%N)
  body='{"jsonrpc":"2.0","id":"'$id'","method":"message/send","params":{"message":{"kind":"message","role":"user","messageId":"'$id'","parts":[{"kind":"text","text":"ping"}]}}}'
  if ! curl -fsS --max-time 15 -H 'Content-Type: application/json' -d "$body" "$url/" >/dev/null 2>&1; then
    restart "$unit" wedged
  fi
done
exit 0
