"""MobileNetV1 (Howard et al., 2017) or V2 (Sandler et al., 2018) for 32x32 images, on handwritten digits."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import common

# Channels at width 1, and the stride of the depthwise convolution.
LAYERS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1),
          (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1)]

# Of V2: expansion, channels at width 1, blocks, the stride of the first one.
STAGES = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
          (6, 320, 1, 1)]


def normalized(convolution, activation=nn.ReLU):
    return nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels),
                         activation(inplace=True))


def separable(inputs, outputs, stride):
    """A 3x3 convolution of each channel by itself, then a 1x1 convolution across them."""
    return nn.Sequential(
        normalized(nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)),
        normalized(nn.Conv2d(inputs, outputs, 1, bias=False)))


class MobileNet(nn.Module):
    def __init__(self, width, classes=10):
        super().__init__()
        inputs = max(8, int(32 * width))
        layers = [normalized(nn.Conv2d(3, inputs, 3, 1, 1, bias=False))]
        for channels, stride in LAYERS:
            outputs = max(8, int(channels * width))
            layers.append(separable(inputs, outputs, stride))
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class InvertedResidual(nn.Module):
    """Wide in the middle: 1x1, 3x3 of each channel by itself, 1x1 without activation."""

    def __init__(self, inputs, outputs, expansion, stride):
        super().__init__()
        wide = inputs * expansion
        self.widen = normalized(nn.Conv2d(inputs, wide, 1, bias=False), nn.ReLU6)
        self.depthwise = normalized(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.ReLU6)
        self.narrow = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.added = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.narrow(self.depthwise(self.widen(x)))
        return x + y if self.added else y


class MobileNetV2(nn.Module):
    def __init__(self, width, classes=10):
        super().__init__()
        inputs = max(8, int(32 * width))
        layers = [normalized(nn.Conv2d(3, inputs, 3, 1, 1, bias=False), nn.ReLU6)]
        for expansion, channels, blocks, stride in STAGES:
            outputs = max(8, int(channels * width))
            for block in range(blocks):
                layers.append(InvertedResidual(inputs, outputs, expansion, stride if block == 0 else 1))
                inputs = outputs
        last = max(8, int(1280 * width))
        layers.append(normalized(nn.Conv2d(inputs, last, 1, bias=False), nn.ReLU6))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(last, classes)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def main():
    parser = common.options(__doc__, batch=128)
    common.image_options(parser)
    common.block_options(parser)
    parser.add_argument("--width", type=float, default=1.0, help="width multiplier")
    parser.add_argument("--version", type=int, choices=(1, 2), default=1)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    common.begin(args)

    model = (MobileNet if args.version == 1 else MobileNetV2)(args.width)
    common.checkpoint_blocks(model.features, args)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=4e-5)
    run = common.Run(args, [model], [optimizer])
    data = common.batches(common.Digits(32, args.images), args, run.first)

    for step in range(run.first, args.steps):
        with run.step(step) as report:
            images, labels = next(data)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            report(loss=loss)
    run.finish()


if __name__ == "__main__":
    main()
