#!/usr/bin/env bash
# cpu.sh: where the CPU seconds of a run of the tests go, on Linux. scripts/test.sh calls it, scripts/slowest.sh prints what it wrote.
#
#   cpu.sh run CMD [ARG...]    go test -exec: runs a test binary in its package's directory and appends "package NAME START END SECONDS" to
#                              CPU_FILE: of the binary and of all that it started and waited for (sidecars, browsers, apps)
#   cpu.sh sample              appends "servers TIME BROKER DATABASE" to CPU_FILE every two seconds until it is ended
#   cpu.sh children            prints the seconds of the children that the output of times on its input is of
#   cpu.sh report              prints seconds by package from CPU_FILE, the sum, then Go, broker and database
#
# CPU_SERVERS names a file to which scripts/broker.sh and scripts/postgres.sh append "broker PID" and "database PID" of each server that they start.
# A server works for several packages at a time: what it takes between two samples counts for the packages that ran then, in equal parts.
# TEST_PACKAGES=1 runs one at a time.
set -euo pipefail
export LC_ALL=C # a decimal point
cd_root() { cd "$(dirname "${BASH_SOURCE[0]}")/.."; }

run() {
  local root start rc=0
  root=$(cd_root && pwd)
  start=$EPOCHREALTIME
  "$@" || rc=$?
  times >"$CPU_FILE.$$" # a shell of its own, as in $(times), has no children
  echo "package ${PWD#"$root"/} $start $EPOCHREALTIME $(children <"$CPU_FILE.$$")" >>"$CPU_FILE"
  rm -f "$CPU_FILE.$$"
  exit "$rc"
}

# children prints the seconds in the second line of times, of what a shell has waited for: minutes and seconds of user and system.
children() { awk 'NR == 2 {gsub(/[ms]/, " "); print $1 * 60 + $2 + $3 * 60 + $4}'; }

# sample sums the processes of each broker's group, and each database's first process and the children of it. What has ended keeps what it had.
sample() {
  exec awk -v list="$CPU_SERVERS" -v file="$CPU_FILE" -v tick="$(getconf CLK_TCK)" '
    function look(   line, pid, f, kind) {
      while ((getline line <list) > 0) {split(line, f, " "); server[f[2]] = f[1]}
      close(list)
      while (("cat /proc/[0-9]*/stat 2>/dev/null" | getline line) > 0) {
        pid = line + 0
        sub(/.*\) /, "", line) # the name may hold spaces
        split(line, f, " ")    # state, parent, group, …; 12 to 15 are the ticks of itself and of the children that it waited for
        kind = ""
        if (server[f[3]] == "broker") kind = "broker"
        if (server[pid] == "database" || server[f[2]] == "database") kind = "database"
        if (kind != "") {of[pid] = kind; spent[pid] = (f[12] + f[13] + (server[pid] == "broker" ? f[14] + f[15] : 0)) / tick}
      }
      close("cat /proc/[0-9]*/stat 2>/dev/null")
    }
    BEGIN {
      do {
        look()
        sum["broker"] = sum["database"] = 0
        for (pid in of) sum[of[pid]] += spent[pid]
        "date +%s.%N" | getline now; close("date +%s.%N")
        print "servers", now, sum["broker"], sum["database"] >>file; close(file)
      } while (system("sleep 2") == 0)
    }'
}

report() {
  awk '
    $1 == "package" {name[++n] = $2; from[n] = $3; to[n] = $4; go[n] = $5; tests += $5}
    $1 == "servers" {at[++m] = $2; broker[m] = $3; database[m] = $4}
    $1 == "all" {all = $2}
    END {
      for (i = 2; i <= m; i++) {
        busy = 0
        for (p = 1; p <= n; p++) {
          a = from[p] > at[i-1] ? from[p] : at[i-1]; b = to[p] < at[i] ? to[p] : at[i]
          part[p] = b > a ? b - a : 0; busy += part[p]
        }
        for (p = 1; p <= n; p++) if (part[p]) {
          ofbroker[p] += (broker[i] - broker[i-1]) * part[p] / busy; ofdatabase[p] += (database[i] - database[i-1]) * part[p] / busy
        }
      }
      printf "CPU seconds: %.0f tests, %.0f compilers and linkers, %.0f brokers, %.0f databases, %.0f in all\n",
        tests, all - tests, broker[m] - broker[1], database[m] - database[1], all + broker[m] - broker[1] + database[m] - database[1]
      print "      all        Go    broker  database  wall (s)  package"
      for (p = 1; p <= n; p++)
        printf "%9.1f %9.1f %9.1f %9.1f %9.1f  %s\n", go[p] + ofbroker[p] + ofdatabase[p], go[p], ofbroker[p], ofdatabase[p], to[p] - from[p],
          name[p] | "sort -k1,1nr"
    }' "$CPU_FILE"
}

case ${1:-} in
  run) shift && run "$@" ;;
  sample) sample ;;
  children) children ;;
  report) report ;;
  *) sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0" >&2; exit 64 ;;
esac
