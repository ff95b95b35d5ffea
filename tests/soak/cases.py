"""What the n-th case of a seed is: a model, how it is run, and what happens to it. Depends on seed and number alone."""
import dataclasses
import random

import injections

# Small sizes of the seven models of docs/results/live.md: a training takes 5 to 30 s.
MODELS = {
    "ResNet-110": ("resnet_cifar.py", "--depth", "110", "--batch", "16", "--steps", "8"),
    "ResNet-32": ("resnet_cifar.py", "--depth", "32", "--batch", "64", "--steps", "8"),
    "MobileNetV1": ("mobilenet.py", "--batch", "48", "--steps", "8"),
    "MobileNetV2": ("mobilenet.py", "--version", "2", "--batch", "32", "--steps", "8"),
    "DCGAN": ("dcgan.py", "--batch", "16", "--steps", "8"),
    "LSTM": ("lstm_lm.py", "--hidden", "256", "--batch", "16", "--vocab", "4000", "--steps", "10"),
    "BERT": ("bert_mlm.py", "--layers", "2", "--hidden", "192", "--heads", "4", "--batch", "8", "--seq", "96",
             "--vocab", "4000", "--steps", "10"),
}
# Those that make a plan, as `sentinel run` asks without a GPU. The first two are what people use: half of the cases.
POLICIES = ("auto", "sentinel", "g10", "home", "tensile", "autotm", "vdnn", "superneurons", "capuchin", "swapadvisor",
            "flashneuron", "lms")


@dataclasses.dataclass
class Case:
    number: int
    model: str
    policy: str
    budget: str          # of --fast; empty: none, so memory of the machine or of a group
    backend: str         # "ssd" or "numa"
    options: list        # of `sentinel run`, beside these
    injections: list     # of injections.py

    def words(self):
        """For the table and for people, without a blank in a field."""
        return {"case": self.number, "model": self.model, "policy": self.policy, "budget": self.budget,
                "backend": self.backend, "options": " ".join(self.options),
                "injected": [injection.name for injection in self.injections]}


def steps(model):
    script, *flags = MODELS[model]
    return int(flags[flags.index("--steps") + 1])


def draw(seed, number, available):
    """`available`: the names of injections that this machine has."""
    rng = random.Random(f"{seed}:{number}")
    model = rng.choice(list(MODELS))
    backend = rng.choices(("ssd", "numa"), (4, 1))[0]
    policy = rng.choice(POLICIES[:2]) if rng.random() < 0.5 else rng.choice(POLICIES)
    options = []
    if backend == "ssd":
        options += ["--io", rng.choice(("auto", "threads")), "--move", rng.choice(("auto", "copy")),
                    f"--checksum={rng.choice(('off', 'sampled', 'full'))}"]
    else:
        policy = rng.choice(("auto", "sentinel", "g10"))
        options += ["--granule", rng.choice(("4K", "2M"))]
    budget = f"{rng.randint(15, 70)}%"
    if rng.random() < 0.05:
        budget = f"{rng.randint(1, 24)}M"  # mostly too small
    kinds = [kind for kind in injections.KINDS if kind.name in available and backend in kind.backends]
    chosen, taken = [], set()
    for kind in rng.sample(kinds, min(len(kinds), rng.choice((0, 1, 1, 2, 2, 3)))):
        if not taken & set(kind.needs):
            taken |= set(kind.needs)
            chosen.append(kind(random.Random(rng.random()), steps(model)))
            options = [word for word in options if not chosen[-1].replaces or not word.startswith(chosen[-1].replaces)]
    return Case(number, model, policy, budget, backend, options, chosen)
