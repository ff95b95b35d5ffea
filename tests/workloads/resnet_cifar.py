"""A CIFAR ResNet (He et al., 2015: 6n+2 layers) on handwritten digits."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

import common


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters (option A of the paper)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.stride > 1 or self.added:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.added))
        return F.relu(out + x)


class ResNet(nn.Module):
    def __init__(self, depth, width, classes=10):
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise SystemExit(f"a CIFAR ResNet has 6n+2 layers; {depth} is not of that form")
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage in range(3):
            for position in range((depth - 2) // 6):
                outputs = width << stage
                blocks.append(Block(inputs, outputs, 2 if stage and position == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = self.blocks(x)
        return self.head(x.mean((2, 3)))


@torch.no_grad()
def evaluate(model, held_out, batch):
    """Mean loss and accuracy over the images that are never trained on."""
    model.eval()
    loss = right = 0.0
    for start in range(0, len(held_out), batch):
        images, labels = held_out[list(range(start, min(start + batch, len(held_out))))]
        answers = model(images)
        loss += float(F.cross_entropy(answers, labels, reduction="sum"))
        right += float((answers.argmax(1) == labels).sum())
    model.train()
    return loss / len(held_out), right / len(held_out)


def main():
    parser = common.options(__doc__, batch=128)
    common.image_options(parser)
    common.block_options(parser)
    parser.add_argument("--depth", type=int, default=32, help="20, 32, 44, 56, 110, ...: 6n+2")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--accumulate", type=int, default=1, metavar="K",
                        help="batches whose gradients make up one step")
    parser.add_argument("--eval-every", type=int, metavar="N", help="evaluate every N steps")
    parser.add_argument("--accuracy", action="store_true", help="evaluate at the end")
    args = parser.parse_args()
    common.begin(args)

    model = ResNet(args.depth, args.width)
    common.checkpoint_blocks(model.blocks, args)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    run = common.Run(args, [model], [optimizer])
    data = common.batches(common.Digits(32, args.images), args, run.first * args.accumulate)
    held_out = common.Digits(32, held_out=True)

    for step in range(run.first, args.steps):
        with run.step(step) as report:
            total = 0
            optimizer.zero_grad()
            for images, labels in list(itertools.islice(data, args.accumulate)):
                loss = F.cross_entropy(model(images), labels) / args.accumulate
                loss.backward()
                total += loss.detach()
            optimizer.step()
            report(loss=total)
        last = args.accuracy and step + 1 == args.steps
        if last or (args.eval_every and (step + 1) % args.eval_every == 0):
            run.evaluated(step, *evaluate(model, held_out, args.batch))
    run.finish()


if __name__ == "__main__":
    main()
