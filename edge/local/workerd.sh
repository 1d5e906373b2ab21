#!/bin/sh
# Runs workerd in a session of its own, so that Ctrl-C reaches only the stack, and lets it die with the
# process that started it, so that nothing is left behind when that one is killed. A bench names an
# address where workerd lets itself be inspected.
set -- "$@" ${WORKERD_INSPECTOR:+"--inspector-addr=$WORKERD_INSPECTOR"}
if command -v setpriv >/dev/null && command -v setsid >/dev/null; then
  exec setsid setpriv --pdeathsig=TERM "$VANTAGE_WORKERD" "$@"
fi
exec "$VANTAGE_WORKERD" "$@"
