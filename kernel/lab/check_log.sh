#!/usr/bin/env bash
# check_log.sh LOG: prints what in a kernel's log says that something is wrong, and exits 1 if it found any.
# A log that does not reach the end of the command, or is not there, says nothing and is wrong too.
set -euo pipefail
log=$1

# What the kernel says when it finds itself in the wrong. An OOM kill, a poisoned page or an injected
# failure prints a call trace too, but is the kernel at work: "Call Trace" alone is no sign.
trouble='WARNING:|BUG:|kernel BUG|Oops|Kernel panic|general protection fault|double fault|unable to handle'
trouble+='|KASAN:|UBSAN:|ODEBUG:|VM_BUG|VM_WARN|refcount_t:|kmemleak:.* new suspected|list_(add|del) corruption'
trouble+='|possible circular locking|possible recursive locking|possible irq lock inversion|inconsistent lock state'
trouble+='|suspicious RCU|DEBUG_LOCKS_WARN_ON|Invalid wait context|scheduling while atomic|sleeping function called'
trouble+='|INFO: task .* blocked|rcu: INFO:|soft lockup|hard LOCKUP|nobody cared|Bad page|Bad rss-counter|Bad swap'
trouble+='|EXT4-fs error|EXPECTATION FAILED|ASSERTION FAILED|\] *not ok '

# What run-command writes when the command is done.
end='lab: the command ended with status'

# What a healthy guest prints all the same, each with its reason.
harmless=()

found=$(grep -snE "$trouble" "$log" | { if [ ${#harmless[@]} -gt 0 ]; then grep -vE "$(IFS='|'; echo "${harmless[*]}")"; else cat; fi; } || true)
if [ -z "$found" ]; then
  grep -qs "$end" "$log" && exit 0
  echo "lab: the guest's kernel log ends before the command did: nothing is known of what came after"
  exit 1
fi
echo "lab: the guest's kernel complained:"
first=$(head -n 1 <<<"$found" | cut -d: -f1)
sed -n "$((first > 3 ? first - 3 : 1)),$((first + 60))p" "$log"
echo "lab: all lines that matched:"
head -n 40 <<<"$found"
if grep -q 'int3: 0000' "$log"; then
  echo "lab: an int3 where the log shows another instruction is the emulator's (see What the guest is not): run it again"
fi
exit 1
