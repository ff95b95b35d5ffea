"""A DCGAN (Radford et al., 2015) that learns to draw 64x64 digits: two models, each
with an Adam optimizer of its own, so a step has two optimizer steps."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import common


def generator(noise, width):
    def up(inputs, outputs, stride, padding):
        return [nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False),
                nn.BatchNorm2d(outputs), nn.ReLU(True)]

    return nn.Sequential(
        *up(noise, width * 8, 1, 0),            # 4 x 4
        *up(width * 8, width * 4, 2, 1),        # 8 x 8
        *up(width * 4, width * 2, 2, 1),        # 16 x 16
        *up(width * 2, width, 2, 1),            # 32 x 32
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width):
    def down(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False),
                nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True)]

    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True),
        *down(width, width * 2),
        *down(width * 2, width * 4),
        *down(width * 4, width * 8),
        nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def initialize(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def main():
    parser = common.options(__doc__, batch=128)
    common.image_options(parser)
    parser.add_argument("--width", type=int, default=64,
                        help="channels of the layers next to the image")
    parser.add_argument("--noise", type=int, default=100, help="inputs of the generator")
    parser.add_argument("--lr", type=float, default=2e-4)
    args = parser.parse_args()
    common.begin(args)

    draw = generator(args.noise, args.width).apply(initialize)
    judge = discriminator(args.width).apply(initialize)
    draw_optimizer = torch.optim.Adam(draw.parameters(), args.lr, betas=(0.5, 0.999))
    judge_optimizer = torch.optim.Adam(judge.parameters(), args.lr, betas=(0.5, 0.999))
    run = common.Run(args, [draw, judge], [draw_optimizer, judge_optimizer])
    data = common.batches(common.Digits(64, args.images), args, run.first)

    for step in range(run.first, args.steps):
        with run.step(step) as report:
            real, _ = next(data)
            true, false = torch.ones(len(real)), torch.zeros(len(real))

            # The judge learns to tell real images from drawn ones.
            judge_optimizer.zero_grad()
            judge_loss = F.binary_cross_entropy_with_logits(judge(real), true)
            judge_loss.backward()
            drawn = draw(torch.randn(len(real), args.noise, 1, 1))
            drawn_loss = F.binary_cross_entropy_with_logits(judge(drawn.detach()), false)
            drawn_loss.backward()
            judge_optimizer.step()

            # The generator learns to draw what the judge takes for real.
            draw_optimizer.zero_grad()
            draw_loss = F.binary_cross_entropy_with_logits(judge(drawn), true)
            draw_loss.backward()
            draw_optimizer.step()
            report(loss=judge_loss + drawn_loss, generator_loss=draw_loss)
    run.finish()


if __name__ == "__main__":
    main()
