"""Torchvision's own models, unchanged and from random weights, on handwritten digits.
Exits with 77, "skipped" to most test runners, where torchvision is missing."""

import sys

import torch
import torch.nn.functional as F

import common

# Image size, and a batch that takes two processor cores a few seconds.
MODELS = {
    "resnet50": (224, 8),
    "vgg16": (224, 4),
    "vit_b_16": (224, 4),
    "mobilenet_v2": (224, 16),
    "inception_v3": (299, 8),
}
SKIPPED = 77


def loss_of(model, images, labels):
    answers = model(images)
    if isinstance(answers, tuple):      # Inception answers from its side branch as well
        return F.cross_entropy(answers[0], labels) + 0.4 * F.cross_entropy(answers[1], labels)
    return F.cross_entropy(answers, labels)


def main():
    parser = common.options(__doc__, batch=None)
    common.image_options(parser)
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    size, batch = MODELS[args.model]
    args.batch = args.batch or batch
    try:
        import torchvision
    except (ImportError, OSError, RuntimeError) as error:
        print(f"skipped: torchvision cannot be used here ({error})", file=sys.stderr)
        sys.exit(SKIPPED)
    common.begin(args)

    extra = {"init_weights": True} if args.model == "inception_v3" else {}
    model = getattr(torchvision.models, args.model)(weights=None, num_classes=10, **extra)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    run = common.Run(args, [model], [optimizer])
    data = common.batches(common.Digits(size, args.images), args, run.first)

    for step in range(run.first, args.steps):
        with run.step(step) as report:
            images, labels = next(data)
            optimizer.zero_grad()
            loss = loss_of(model, images, labels)
            loss.backward()
            optimizer.step()
            report(loss=loss)
    run.finish()


if __name__ == "__main__":
    main()
