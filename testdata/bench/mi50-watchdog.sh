#!/bin/bash
# The GPU watchdog as a host's owner would write it in an evening: rocm-smi, a
# state file, two rules, docker stop, a note to ntfy. The bench compares with
# it; nobody should install it.
set -u
MAX_BUSY=${MAX_BUSY:-3600}
HOT_AT=${HOT_AT:-97}
HOT_CHECKS=${HOT_CHECKS:-3}
CONTAINER=${CONTAINER:-lyra-brain}
STATE=${STATE:-/var/lib/mi50-watchdog/state}
NTFY_URL=${NTFY_URL:-}

now=$(date +%s)
busy_since=0
hot=0
[ -f "$STATE" ] && read -r busy_since hot <"$STATE"

out=$(rocm-smi --showuse --showtemp 2>/dev/null)
use=$(echo "$out" | grep 'GPU use (%)' | head -n 1 | awk '{print $NF}')
temp=$(echo "$out" | grep -i 'junction' | head -n 1 | awk '{print int($NF)}')
[ -n "$use" ] || { logger -t mi50-watchdog "no reading"; exit 0; }

if [ "$use" -gt 0 ]; then
  [ "$busy_since" -gt 0 ] || busy_since=$now
else
  busy_since=0
fi
if [ "${temp:-0}" -ge "$HOT_AT" ]; then hot=$((hot + 1)); else hot=0; fi

why=
if [ "$busy_since" -gt 0 ] && [ $((now - busy_since)) -ge "$MAX_BUSY" ]; then
  why="busy for $((now - busy_since)) s"
elif [ "$hot" -ge "$HOT_CHECKS" ]; then
  why="junction at $temp C"
fi
if [ -n "$why" ]; then
  docker stop "$CONTAINER" >/dev/null
  logger -t mi50-watchdog "stopped $CONTAINER: $why"
  [ -n "$NTFY_URL" ] && curl -fsS -m 10 -d "stopped $CONTAINER: $why" "$NTFY_URL" >/dev/null
  busy_since=0
  hot=0
fi
echo "$busy_since $hot" >"$STATE"
