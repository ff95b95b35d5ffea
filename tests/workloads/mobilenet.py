"""MobileNetV1 (Howard et al., 2017) for 32x32 images, on handwritten digits."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import common

# Channels at width 1, and the stride of the depthwise convolution.
LAYERS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1),
          (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1)]


def normalized(convolution):
    return nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels),
                         nn.ReLU(inplace=True))


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


def main():
    parser = common.options(__doc__, batch=128)
    common.image_options(parser)
    parser.add_argument("--width", type=float, default=1.0, help="width multiplier")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    common.begin(args)

    model = MobileNet(args.width)
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
