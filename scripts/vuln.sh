#!/usr/bin/env bash
# vuln.sh: known vulnerabilities in the Go release, the modules and the functions that the binary really uses.
# It asks the database at VULNDB, an https:// or file:// URL; default https://vuln.go.dev. Without a database it fails:
# nothing was checked then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

db=${VULNDB:-https://vuln.go.dev}
tool=$(scripts/gotool.sh golang.org/x/vuln/cmd/govulncheck@v1.1.4)
status=0
"$tool" -db "$db" ./... || status=$?
case $status in
0) echo "vuln: nothing known" ;;
3) echo "vuln: see above" >&2 ;;
*) echo "vuln: NOT CHECKED, the database $db could not be used" >&2 ;;
esac
exit "$status"
