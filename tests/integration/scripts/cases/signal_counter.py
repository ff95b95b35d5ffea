"""Names each signal as it arrives, and a second after the last how often each did. It trains nothing, so that many
signals can be tried in little time."""
import collections
import signal
import time

arrived, told = [], 0
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, lambda number, _: arrived.append((number, time.monotonic())))


def name(number):
    return signal.Signals(number).name if number < signal.SIGRTMIN else f"RT{number - signal.SIGRTMIN}"


print("ready", flush=True)
while not arrived or time.monotonic() < arrived[-1][1] + 1:
    time.sleep(0.02)
    for number, _ in arrived[told:]:
        print(name(number), flush=True)
        told += 1
print(sorted(collections.Counter(name(number) for number, _ in arrived).items()), flush=True)
