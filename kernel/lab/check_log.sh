#!/usr/bin/env bash
# check_log.sh LOG: prints what in a kernel's log says that something is wrong, and exits 1 if it found any.
set -euo pipefail
log=$1

trouble='WARNING:|BUG:|BUG at|Oops|KASAN:|UBSAN:|KCSAN:|kmemleak:.*new suspected|possible circular locking'
trouble+='|possible recursive locking|possible irq lock inversion|possible deadlock|suspicious RCU|inconsistent lock state'
trouble+='|INFO: task .* blocked|INFO: rcu.*(stall|detected)|rcu: INFO:|soft lockup|hard LOCKUP|general protection fault'
trouble+='|kernel BUG|Bad page|Bad rss-counter|Bad swap|bad: scheduling|scheduling while atomic|sleeping function called'
trouble+='|Kernel panic|double fault|unable to handle|refcount_t:|list_(add|del) corruption|ODEBUG:|DEBUG_LOCKS_WARN_ON'
trouble+='|held lock freed|lock held when returning|Invalid wait context|unbalanced|nobody cared|page_owner|VM_(WARN|BUG)'
trouble+='|stack segment|invalid opcode|corrupted stack|slab-(use|out)|Object .* not freed|Call Trace'
trouble+='|EXT4-fs error|I/O error|Out of memory and no killable|^not ok|\] *not ok'

# Lines that a healthy guest prints, each with its reason.
harmless=(
)

found=$(grep -nE "$trouble" "$log" | { if [ ${#harmless[@]} -gt 0 ]; then grep -vE "$(IFS='|'; echo "${harmless[*]}")"; else cat; fi; } || true)
[ -z "$found" ] && exit 0
echo "lab: the guest's kernel complained:"
first=$(head -n 1 <<<"$found" | cut -d: -f1)
sed -n "$((first > 3 ? first - 3 : 1)),$((first + 60))p" "$log"
echo "lab: all lines that matched:"
head -n 40 <<<"$found"
exit 1
