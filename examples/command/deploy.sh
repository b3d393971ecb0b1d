#!/bin/sh
# Stands for any tool that is no Terraform. It keeps its state in DAYFLY_STATE_DIR and writes its outputs to
# DAYFLY_OUTPUTS.
set -eu

release="$DAYFLY_STATE_DIR/release"
case "$DAYFLY_OPERATION" in
update)
	last=$(cat "$release" 2>/dev/null || echo 0)
	next=$((last + 1))
	echo "deploying $DAYFLY_VAR_service, release $next after $last"
	echo "$next" >"$release"
	printf '{"release": %s, "service": "%s"}\n' "$next" "$DAYFLY_VAR_service" >"$DAYFLY_OUTPUTS"
	;;
destroy)
	echo "removing $DAYFLY_VAR_service, release $(cat "$release" 2>/dev/null || echo none)"
	rm -f "$release"
	;;
esac
