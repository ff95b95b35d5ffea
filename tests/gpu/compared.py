"""What is compared: five models, trained by plain PyTorch, by what people do today, and by Sentinel."""
import dataclasses
import typing

MODELS = ("ResNet-152", "BERT-large", "GPT-2", "ViT", "DCGAN")
SHARES = (40, 20, 60)  # percent of the peak, the first to be known first
GRANULE, CHUNKS = "2M", ", chunks of "  # --granule's usual size, and how a label names another
NO_TIME = "no time left"  # a row's failure that another call mends

# Label and technique of those without Sentinel, in the order of one process. What differs from itself in the end is
# not comparable.
BASELINES = {"plain": "none", "checkpoint": "checkpoint", "save_on_cpu": "save_on_cpu", "plain again": "none"}


@dataclasses.dataclass(frozen=True)
class Contender:
    """Sentinel with a share of the peak (none: all), by a policy, over a file and so much of the host's memory, in
    chunks of that size."""
    share: typing.Optional[int] = None
    policy: typing.Optional[str] = None
    host: typing.Optional[str] = None
    granule: str = GRANULE

    @property
    def label(self):
        share = f" {self.share} %" if self.share else ""
        file = f", file, {self.host}" if self.host else ""
        chunks = f"{CHUNKS}{self.granule}" if self.granule != GRANULE else ""
        return f"Sentinel{share}{f', {self.policy}' if self.policy else ''}{file}{chunks}"


def by_plan_and_by_demand(shares=SHARES, granules=(GRANULE,)):
    """In the order of what is to be known first: the first share in chunks of each size, all else in the first's. `lru`
    moves by demand alone."""
    first = granules[0]
    return [*(Contender(shares[0], granule=granule) for granule in granules), Contender(granule=first),
            *(Contender(share, granule=first) for share in shares[1:]),
            *(Contender(share, "lru", granule=first) for share in shares)]


def in_any_chunks(rows, label):
    """That contender's rows, whatever the size of chunks."""
    return [row for name, row in rows.items() if name == label or name.startswith(label + CHUNKS)]


def better_granule(models):
    """Of all that was measured with the first share; the usual one where nothing tells."""
    speeds = {}
    for rows in models.values():
        for label, row in rows.items():
            share, _, granule = label.partition(CHUNKS)
            if share == Contender(SHARES[0]).label and "of_plain" in row:
                speeds.setdefault(granule or GRANULE, []).append(row["of_plain"])
    return max(speeds, key=lambda granule: sum(speeds[granule]) / len(speeds[granule]), default=GRANULE)


def by_other_policies(shares=SHARES, host=None):
    """With the first share."""
    return [*(Contender(shares[0], policy) for policy in ("auto", "g10", "deepum")),
            *([Contender(shares[0], host=host)] if host else [])]


def not_comparable(rows):
    return rows.get("plain again", {}).get("same") is False


def without_plain(rows):
    """Whether plain PyTorch failed, and not for lack of time: there is nothing to hold the others against."""
    return rows.get("plain", {}).get("failure", NO_TIME) != NO_TIME


def wrong(rows):
    """Labels of a model's rows in which Sentinel failed or changed a number, or plain PyTorch did by itself. Another
    contender may run out of memory, and time may run out."""
    if not_comparable(rows):
        return ["plain again"]
    return [label for label, row in rows.items() if label.startswith("Sentinel")
            and (row["failure"] != NO_TIME if "failure" in row else row.get("same") is False)]
