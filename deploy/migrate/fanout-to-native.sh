#!/usr/bin/env bash
# fanout-to-native.sh: moves a quorum queue from SIDECAR_TOPOLOGY=fanout to native while messages flow, and back.
# docs/migration.md says when to run which step.
#
#   fanout-to-native.sh [-p VHOST] STEP QUEUE [MIN [MAX]]
#
#   check    whether QUEUE, the service's queue, can be moved, and how far it is; changes nothing
#   begin    sets a policy by which QUEUE delays retries itself
#   finish   deletes the retry exchange and the retry queues, when no sidecar with fanout runs any more
#   back     removes the policy. No step can see sidecars: be sure that none with native runs any more
#
# MIN and MAX are delays in milliseconds: those of native's SIDECAR_RETRY_DELAY, or of the two SIDECAR_RETRY_DELAYS. Without
# them they are the shortest and the longest delay of the retry queues. Every step can be repeated, and begin changes
# the delays of a policy that it has set before. A policy of another name that delays retries will do as well: begin
# replaces its delays if MIN is given.
#
#   RABBITMQCTL        the command, default rabbitmqctl
#   REDECLARE_SECONDS  how long finish waits for a sidecar that declares the retry exchange again, default 20: they do so every 15
set -euo pipefail
shopt -s inherit_errexit

usage() {
  [[ -f $0 ]] || die 'usage: [-p VHOST] check|begin|finish|back QUEUE [MIN [MAX]], delays in milliseconds' # from bash -s
  sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0" >&2
  exit 64
}
die() { printf 'fanout-to-native.sh: %s\n' "$*" >&2; exit 1; }
say() { printf '%s\n' "$*"; }

vhost=/
if [[ ${1:-} = -p ]]; then vhost=${2:-} && shift 2; fi
[[ $# -ge 2 && $# -le 4 && $1 =~ ^(check|begin|finish|back)$ && ${3:-1}${4:-1} =~ ^[0-9]+$ ]] || usage
step=$1 queue=$2 shortest=${3:-} longest=${4:-${3:-}}
ours="native-retry $queue"

# Standard input may be this script.
ctl() { "${RABBITMQCTL:-rabbitmqctl}" -s "$@" </dev/null || die "rabbitmqctl $1 fails"; }

# erlang is a name as a term for eval, whatever characters it has.
erlang() { printf '<<%s>>' "$(printf %s "$1" | od -An -v -tu1 | tr -s ' \n' ',' | sed 's/^,//; s/,$//')"; }

# argument TEXT NAME is the value of an argument in a row of list_queues; empty for none.
argument() { if [[ $1 =~ \{\"$2\",\"?([^]\"\}\[]*)\"?\} ]]; then printf %s "${BASH_REMATCH[1]}"; fi; }

# read_queues finds the queue, and the queues whose messages return to it after a time.
read_queues() {
  local rows name type messages arguments effective policy
  rows=$(ctl list_queues -p "$vhost" name type messages arguments effective_policy_definition policy)
  found='' messages_in=() delay_of=()
  while IFS=$'\t' read -r name type messages arguments effective policy; do # only the last one may be empty
    if [[ $name = "$queue" ]]; then
      found=$type settings=$arguments policies=$effective applied=$policy
    elif [[ $arguments == *'{"x-dead-letter-exchange",[]}'* ]] &&
      [[ $(argument "$arguments" x-dead-letter-routing-key) = "$queue" ]]; then
      messages_in[$name]=$messages delay_of[$name]=$(argument "$arguments" x-message-ttl)
    fi
  done <<<"$rows"
  [[ $found ]] || die "there is no queue \"$queue\" in the virtual host \"$vhost\""
  exchange=$(argument "$settings" x-dead-letter-exchange)
}

# delays is true where the policy that applies delays what is rejected, also one set by hand.
delays() { [[ $policies =~ delayed-retry-type[^a-z]+failed ]]; }

# read_bindings finds the queues that the retry exchange leads to. Only these are the sidecar's: another program
# may delay messages of its own for the queue.
read_bindings() {
  local rows source destination
  retries=() strange='' waiting=0
  rows=$(ctl list_bindings -p "$vhost" destination_name source_name)
  while IFS=$'\t' read -r destination source; do
    [[ $source && $source = "$exchange" ]] || continue
    if [[ ${delay_of[$destination]:-} ]]; then
      retries[$destination]=1 waiting=$((waiting + messages_in[$destination]))
    else
      strange=$destination
    fi
  done <<<"$rows"
}

# read_policy NAME finds its definition, which is empty without such a policy, and its priority.
read_policy() {
  local rows name text number
  rows=$(ctl list_policies -p "$vhost")
  definition='' priority=0
  while IFS=$'\t' read -r _ name _ _ text number; do
    if [[ $name = "$1" ]]; then definition=$text priority=$number; fi
  done <<<"$rows"
}

new_enough() {
  local rows
  rows=$(ctl list_feature_flags name state)
  grep -Eq '^rabbitmq_4\.3\.0[[:space:]]+enabled$' <<<"$rows" || die "a node of the cluster is older than RabbitMQ 4.3, or may be" \
    "replaced by one. Upgrade every node, then: rabbitmqctl enable_feature_flag rabbitmq_4.3.0"
}

preconditions() {
  local limit another='Take a new queue: "A queue beside it" in docs/migration.md'
  new_enough
  read_queues
  [[ $found = quorum ]] || die "\"$queue\" is a $found queue, and only quorum queues delay retries. $another"
  [[ ! $(argument "$settings" x-delayed-retry-type) ]] || die "\"$queue\" has delays of its own: it was declared for native"
  [[ $exchange && $(argument "$settings" x-dead-letter-strategy) = at-least-once ]] ||
    die "\"$queue\" does not dead-letter to a retry exchange at least once: no sidecar with SIDECAR_TOPOLOGY=fanout has declared it"
  limit=$(argument "$settings" x-delivery-limit)
  [[ ${limit:-20} -ge 2147483647 || $limit = -* ]] ||
    die "\"$queue\" has the delivery limit ${limit:-20}, and native's retries count. $another"
  [[ $policies != *delivery-limit* ]] || die "a policy sets delivery-limit on \"$queue\", and native's retries count: remove that key"
  read_bindings
}

check() {
  preconditions
  say "policy        ${applied:-none}"
  say "retry queues  ${!retries[*]}"
  say "messages      $waiting, in the retry queues"
  if ! delays; then
    say 'next: run begin'
  elif [[ ${#retries[@]} = 0 ]]; then
    say 'nothing is left to do: no retry exchange leads to a retry queue'
  else
    say 'next: roll all sidecars to SIDECAR_TOPOLOGY=native, then run finish. Or roll all to fanout, then run back'
  fi
}

begin() {
  preconditions
  local definition priority pattern rows name
  if [[ ! $shortest && $applied != "$ours" ]] && delays; then
    say "the policy \"$applied\" delays retries of \"$queue\" already. To replace its delays: begin QUEUE MIN [MAX]"
    say 'next: roll all sidecars to SIDECAR_TOPOLOGY=native, then run finish'
    return
  fi
  if [[ ! $shortest && ${#retries[@]} -gt 0 ]]; then
    rows=$(for name in "${!retries[@]}"; do printf '%s\n' "${delay_of[$name]}"; done | sort -n)
    shortest=${rows%%$'\n'*} longest=${rows##*$'\n'}
  fi
  [[ $shortest ]] || die 'no retry queue has the delay: give MIN, in milliseconds'
  [[ $shortest -gt 0 && $longest -ge $shortest ]] || die 'MIN has to be more than 0, and MAX not less than MIN'
  read_policy "$applied"
  # One policy applies to a queue. So the new one has a higher priority and says what the present one says, too.
  if [[ $applied != "$ours" ]]; then priority=$((priority + 1)); fi
  definition=$(sed -E 's/"delayed-retry-[a-z]+":("[a-z]+"|[0-9]+),?//g; s/^\{//; s/,?\}$//' <<<"$definition")
  definition="{${definition:+$definition,}\"delayed-retry-type\":\"failed\",\"delayed-retry-min\":$shortest,\"delayed-retry-max\":$longest}"
  pattern=^$(sed "s/[][\\.*^\$(){}?+|]/\\\\&/g" <<<"$queue")\$
  ctl set_policy -p "$vhost" --apply-to quorum_queues --priority "$priority" "$ours" "$pattern" "$definition"
  say "\"$queue\" has the policy $definition"
  say 'next: roll all sidecars to SIDECAR_TOPOLOGY=native, then run finish'
}

# ready is how many messages are ready in a queue now: list_queues counts those of quorum queues every five seconds.
ready() {
  ctl eval "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r($(erlang "$vhost"), queue, $(erlang "$1"))),
    {ok, Ready, _} = rabbit_amqqueue:stat(Q), Ready."
}

# wants_empty ends the step while messages are under way to a retry queue or in one.
wants_empty() {
  local name kept
  for name in "${!retries[@]}"; do
    [[ ${messages_in[$name]} != 0 ]] || messages_in[$name]=$(ready "$name")
    [[ ${messages_in[$name]} = 0 ]] || die "\"$name\" holds ${messages_in[$name]} messages, which return to \"$queue\": run finish again when it is empty"
  done
  kept=$(ctl eval "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r($(erlang "$vhost"), queue, $(erlang "$queue"))),
    proplists:get_value(messages_dlx, rabbit_amqqueue:info(Q, [messages_dlx])).")
  [[ $kept = 0 ]] || die "$kept messages are on their way from \"$queue\" to the retry exchange \"$exchange\", and none is lost." \
    'Run finish again. If they stay, run a sidecar with SIDECAR_TOPOLOGY=fanout, which declares it, until they have arrived'
}

# wants_none ends the step when the retry exchange is there.
wants_none() {
  local rows
  rows=$(ctl list_exchanges -p "$vhost" name)
  ! grep -Fxq -- "$exchange" <<<"$rows" || die "a sidecar with SIDECAR_TOPOLOGY=fanout runs: it has declared \"$exchange\" again." \
    "Nothing is lost. Roll it to native, and run finish again"
}

finish() {
  local name
  read_queues
  delays || die "no policy delays retries of \"$queue\": run begin, and roll all sidecars to SIDECAR_TOPOLOGY=native"
  read_bindings
  [[ ! $strange ]] || die "\"$exchange\" leads to \"$strange\" as well, which does not return to \"$queue\": remove that binding"
  wants_empty
  if [[ ${#retries[@]} -gt 0 ]]; then
    # The broker deletes a quorum queue whether it is empty or not. Without the exchange nothing enters: what a sidecar
    # with fanout rejects then stays in QUEUE, what it publishes is returned to it, and it declares the exchange again.
    ctl eval "ok = rabbit_exchange:delete(rabbit_misc:r($(erlang "$vhost"), exchange, $(erlang "$exchange")), false, <<\"none\">>)." >/dev/null
    sleep "${REDECLARE_SECONDS:-20}"
    wants_none
    read_queues
    wants_empty
    wants_none
    for name in "${!retries[@]}"; do ctl delete_queue -p "$vhost" "$name" >/dev/null; unset "messages_in[$name]"; done
  fi
  for name in "${!messages_in[@]}"; do
    say "\"$name\" returns messages to \"$queue\", too. If only sidecars with SIDECAR_TOPOLOGY=fanout have used it, delete it when it is empty"
  done
  say "moved: \"$queue\" has no retry exchange any more"
}

back() {
  local definition priority
  read_queues
  read_policy "$ours"
  if [[ ! $definition ]]; then
    say "nothing to do: there is no policy \"$ours\""
    if delays; then say "The policy \"$applied\" delays retries. When no sidecar with native runs any more, remove its keys delayed-retry-*"; fi
    return
  fi
  read_bindings
  [[ ${#retries[@]} -gt 0 ]] || die 'there is no retry exchange with a retry queue: first roll all sidecars to SIDECAR_TOPOLOGY=fanout, which declare both'
  ctl clear_policy -p "$vhost" "$ours"
  say "the policy \"$ours\" is removed. What waits in \"$queue\" comes when its time is over"
  say 'If a sidecar with SIDECAR_TOPOLOGY=native still runs, its retries are used up at once: then run begin again'
}

declare -A messages_in delay_of retries
"$step"
exit # bash reads a script while it runs: this file may have been replaced
